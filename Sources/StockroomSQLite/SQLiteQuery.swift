/// Every statement that an engine prepares, once for each connection.
enum SQLiteQuery: Int, CaseIterable {
  case beginReading, beginWriting, commit, rollback
  case metadata, setMetadata, skipSequence
  case write, writeWithTimes, remove, removeAll
  case writeLarge, removeLarge, removeAllLarge
  case value, largeValue, entry, times, exists
  case allValues, allKeys, allKeysAndValues, allEntries, allSequences, keysAndValuesFrom, count, eachKey,
    pageCount
  case verifiedEntries, verifiedLargeValues

  var sql: String {
    switch self {
    case .beginReading: "BEGIN"
    // Takes the write lock immediately: a transaction that reads first and is then refused the lock would
    // have to start over.
    case .beginWriting: "BEGIN IMMEDIATE"
    case .commit: "COMMIT"
    case .rollback: "ROLLBACK"

    case .metadata: "SELECT sequence, EXISTS (SELECT 1 FROM large_values) FROM metadata"
    case .setMetadata: "UPDATE metadata SET sequence = ?1"
    case .skipSequence: "UPDATE metadata SET sequence = sequence + 1"

    // An overwrite keeps sequence and created; time does not move backwards for an entry (rule W2). SQLite
    // would count a row that is overwritten with equal contents as changed, but make no commit.
    case .write:
      """
      INSERT INTO entries (key, sequence, created, age, value) VALUES (?1, ?2, ?3, 0, ?4)
      ON CONFLICT (key) DO UPDATE SET value = excluded.value, age = max(age, excluded.created - created)
      WHERE age < excluded.created - created OR value IS NOT excluded.value
      """
    case .writeWithTimes:
      """
      INSERT INTO entries (key, sequence, created, age, value) VALUES (?1, ?2, ?3, ?5, ?4)
      ON CONFLICT (key) DO UPDATE SET value = excluded.value, created = excluded.created, age = excluded.age
      WHERE created <> excluded.created OR age <> excluded.age OR value IS NOT excluded.value
      """
    case .remove: "DELETE FROM entries WHERE key = ?1"
    case .removeAll: "DELETE FROM entries"

    case .writeLarge: "INSERT INTO large_values (number, value) VALUES (?1, ?2)"
    case .removeLarge:
      """
      DELETE FROM large_values WHERE number =
        (SELECT value FROM entries WHERE key = ?1 AND typeof(value) = 'integer')
      """
    case .removeAllLarge: "DELETE FROM large_values"

    case .value: "SELECT value FROM entries WHERE key = ?1"
    case .largeValue: "SELECT value FROM large_values WHERE number = ?1"
    case .entry: "SELECT key, value, created, created + age, sequence FROM entries WHERE key = ?1"
    case .times: "SELECT created, created + age FROM entries WHERE key = ?1"
    case .exists: "SELECT 1 FROM entries WHERE key = ?1"

    case .allValues: "SELECT value FROM entries"
    case .allKeys: "SELECT key FROM entries"
    case .allKeysAndValues: "SELECT key, value FROM entries"
    case .allEntries: "SELECT key, value, created, created + age, sequence FROM entries"
    case .allSequences: "SELECT key, sequence FROM entries"
    case .keysAndValuesFrom: "SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key"
    case .count: "SELECT count(*) FROM entries"
    case .eachKey: "SELECT 1 FROM entries"
    case .pageCount: "PRAGMA page_count"

    // Whether the columns have valid contents, and the number of the large value, if it is one.
    case .verifiedEntries:
      """
      SELECT key, typeof(key) = 'blob' AND typeof(sequence) = 'integer' AND typeof(created) = 'integer'
        AND typeof(age) = 'integer' AND age >= 0
        AND (typeof(value) = 'blob' OR typeof(value) = 'integer' AND value > 0),
        sequence, CASE typeof(value) WHEN 'integer' THEN value ELSE 0 END
      FROM entries
      """
    case .verifiedLargeValues: "SELECT number FROM large_values ORDER BY number"
    }
  }
}
