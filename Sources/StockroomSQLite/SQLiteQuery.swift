/// Every statement that an engine prepares, once for each connection.
enum SQLiteQuery: Int, CaseIterable {
  case beginReading, beginWriting, commit, rollback
  case write, remove, removeAll
  case value, times, exists
  case allValues, allKeys, allKeysAndValues, allEntries, keysAndValuesFrom, count

  var sql: String {
    switch self {
    case .beginReading: "BEGIN"
    // Takes the write lock at once: a transaction that reads first and is then refused it would have to start over.
    case .beginWriting: "BEGIN IMMEDIATE"
    case .commit: "COMMIT"
    case .rollback: "ROLLBACK"

    // An overwrite keeps sequence and created; time does not move backwards for an entry (rule W2).
    case .write:
      """
      INSERT INTO entries (key, created, updated, value) VALUES (?1, ?2, ?2, ?3)
      ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated = max(updated, excluded.updated)
      """
    case .remove: "DELETE FROM entries WHERE key = ?1"
    case .removeAll: "DELETE FROM entries"

    case .value: "SELECT value FROM entries WHERE key = ?1"
    case .times: "SELECT created, updated FROM entries WHERE key = ?1"
    case .exists: "SELECT 1 FROM entries WHERE key = ?1"

    case .allValues: "SELECT value FROM entries"
    case .allKeys: "SELECT key FROM entries"
    case .allKeysAndValues: "SELECT key, value FROM entries"
    case .allEntries: "SELECT key, value, created, updated FROM entries ORDER BY sequence"
    case .keysAndValuesFrom: "SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key"
    case .count: "SELECT count(*) FROM entries"
    }
  }
}
