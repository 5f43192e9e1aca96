import StockroomCore

/// The statements that the engine sends to the server.
enum PostgreSQLStatement: Int, CaseIterable, Sendable {
  // Settings of sessions and transactions.
  case settings, localSettings, allowSequentialScans, limitLockWait
  case beginWriting, beginReading, setReadingIsolation, commit
  // Places.
  case recognise, list, drop, lockCreation, makeSchema, makeEntries, makeSequence, makeCommits, mark,
    storeValuesOutside
  // Writers: see ``PostgreSQLCommitter``.
  case claim, forget, forgetOthers, fence, lockShared, lockExclusively, lockOrder
  // Changes.
  case removeAll, lockRows, remove, write, writeWithTimes, fencedWrite, fencedWriteOfOne, notify
  // Reads.
  case value, values, times, existing, entriesOfKeys, count
  // Reads of many rows, in portions.
  case declareValues, declareKeys, declareKeysAndValues, declareEntries, declareRange
  case declareKeysFrom, fetchFew, fetchSome, fetchMany, closeRows
  // Change feeds.
  case listen, tryToMarkSubscriber, markSubscriber

  /// The name of the prepared statement.
  var name: String { "stockroom_\(rawValue)" }

  /// Whether it is used often enough to be prepared.
  var isPrepared: Bool {
    switch self {
    case .fence, .lockShared, .lockExclusively, .lockOrder, .lockRows, .remove, .write, .writeWithTimes,
      .fencedWrite,
      .fencedWriteOfOne, .notify, .value, .values, .times, .existing, .entriesOfKeys:
      true
    default: false
    }
  }
}

extension PostgreSQLStatement {
  /// Whether the statement returns the number of rows with the expected epoch, and writes nothing if there are none.
  /// The statement ``fence`` fails instead.
  var reportsFence: Bool { self == .fencedWrite || self == .fencedWriteOfOne }
}

/// The statements for one namespace.
struct PostgreSQLStatements: Sendable {
  private let texts: [String]

  subscript(statement: PostgreSQLStatement) -> String { texts[statement.rawValue] }

  init(_ place: PostgreSQLNamespace) {
    texts = PostgreSQLStatement.allCases.map { Self.text(of: $0, place) }
  }

  private static func text(of statement: PostgreSQLStatement, _ place: PostgreSQLNamespace) -> String {
    let (entries, commits) = (place.table("entries"), place.table("commits"))
    let sequence = place.table("entry_sequence")
    let request = "unnest($1::bytea[]) WITH ORDINALITY AS request(key, number)"

    return switch statement {
    case .settings, .localSettings:
      // Servers before version 14 do not support two of them, and some systems refuse
      // `client_connection_check_interval`. The same statement checks whether the server accepts writes: the
      // value that it reports when a session begins is out of date behind a pooler. All names
      // include their schema, as the search path is not set before (an `unnest` of several arrays is the
      // server's own without one).
      """
      SELECT
        pg_catalog.count(pg_catalog.set_config(
          pg_catalog.convert_from(name, 'UTF8'), pg_catalog.convert_from(value, 'UTF8'), \(statement == .localSettings))),
        pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool,
        pg_catalog.pg_postmaster_start_time()
      FROM unnest($1::pg_catalog.bytea[], $2::pg_catalog.bytea[]) AS setting(name, value)
      WHERE pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.>=) CASE
        WHEN pg_catalog.convert_from(name, 'UTF8') OPERATOR(pg_catalog.=) 'idle_session_timeout' THEN 140000
        WHEN pg_catalog.convert_from(name, 'UTF8') OPERATOR(pg_catalog.<>) 'client_connection_check_interval' THEN 0
        WHEN pg_catalog.version() OPERATOR(pg_catalog.~) 'linux' THEN 140000
        WHEN pg_catalog.version() OPERATOR(pg_catalog.~) 'darwin|freebsd' THEN 150000 END
      """
    case .allowSequentialScans: "SELECT set_config('enable_seqscan', 'on', true)"
    case .limitLockWait: "SELECT set_config('lock_timeout', $1::text, true)"
    case .beginWriting: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    case .beginReading: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    // Applies only to the transaction in progress, even if that is a single statement. Needs no snapshot, and changes
    // nothing in a transaction that `beginReading` has begun.
    case .setReadingIsolation: "SET transaction_isolation = 'repeatable read'"
    case .commit: "COMMIT"

    case .recognise:
      """
      SELECT n.oid IS NOT NULL,
        (SELECT count(*) FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid),
        (SELECT obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class AS c
          WHERE c.relnamespace = n.oid AND c.relname = 'entries')
      FROM (VALUES ($1::text)) AS place(name) LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = place.name
      """
    case .list: "SELECT nspname::text FROM pg_catalog.pg_namespace WHERE starts_with(nspname::text, $1::text)"
    case .drop: "DROP SCHEMA IF EXISTS \(place.schema) CASCADE"
    case .lockCreation: "SELECT pg_advisory_xact_lock(\(place.lock(of: .creation)))"
    case .makeSchema: "CREATE SCHEMA \(place.schema)"
    case .makeEntries:
      """
      CREATE TABLE \(entries) (
        sequence bigint NOT NULL, created bigint NOT NULL, updated bigint NOT NULL,
        key bytea PRIMARY KEY, value bytea NOT NULL
      ) WITH (fillfactor = 90)
      """
    case .makeSequence: "CREATE SEQUENCE \(sequence) OWNED BY \(entries).sequence"
    case .makeCommits:
      """
      CREATE TABLE \(commits) (writer bytea PRIMARY KEY, epoch bigint NOT NULL, used timestamptz NOT NULL)
      WITH (fillfactor = 20)
      """
    case .storeValuesOutside: "ALTER TABLE \(entries) ALTER COLUMN value SET STORAGE EXTERNAL"
    case .mark: "COMMENT ON TABLE \(entries) IS '\(PostgreSQLNamespace.mark)'"

    case .claim:
      """
      INSERT INTO \(commits) AS writer (writer, epoch, used) VALUES ($1::bytea, $2::bigint + 2, now())
      ON CONFLICT (writer) DO UPDATE
      SET epoch = CASE WHEN writer.epoch = $2::bigint + 1 THEN writer.epoch
        ELSE greatest(writer.epoch, $2::bigint + 2) END, used = now()
      RETURNING epoch
      """
    case .forget: "DELETE FROM \(commits) WHERE writer = $1::bytea"
    case .forgetOthers:
      "DELETE FROM \(commits) WHERE used < now() - interval '7 days' AND writer <> $1::bytea"
    case .fence:
      """
      WITH fence AS (
        UPDATE \(commits) SET epoch = $2::bigint + 1, used = now()
        WHERE writer = $1::bytea AND epoch = $2::bigint RETURNING 1
      ) SELECT 1 / count(*) FROM fence
      """
    case .lockShared: "SELECT pg_advisory_xact_lock_shared(\(place.lock(of: .writers)))"
    case .lockExclusively: "SELECT pg_advisory_xact_lock(\(place.lock(of: .writers)))"
    case .lockOrder: "SELECT pg_advisory_xact_lock(\(place.lock(of: .order)))"

    case .removeAll: "DELETE FROM \(entries)"
    case .lockRows: "SELECT FROM \(entries) WHERE key = ANY ($1::bytea[]) ORDER BY key FOR UPDATE"
    case .remove:
      // In byte order of keys too.
      """
      DELETE FROM \(entries) AS entry USING (
        SELECT old.key FROM \(entries) AS old WHERE old.key = ANY ($1::bytea[]) ORDER BY old.key FOR UPDATE
      ) AS locked WHERE entry.key = locked.key
      """
    case .write: "WITH now AS MATERIALIZED (SELECT \(moment) AS moment) \(write("$1", "$2", place))"
    case .writeWithTimes:
      // Like `write`, but with the given timestamps, or the time of the commit where they are null. Existing rows whose
      // keys are in the last parameter are written without timestamps: their timestamps change as in `overwriting`.
      """
      WITH now AS MATERIALIZED (SELECT \(moment) AS moment)
      INSERT INTO \(entries) AS entry (sequence, created, updated, key, value)
      SELECT sequence, created, updated, key, value FROM (
        SELECT \(nextNumber(place)) AS sequence,
          coalesce(new.created, now.moment) AS created, coalesce(new.updated, now.moment) AS updated, new.key, new.value
        FROM now, unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) AS new(key, value, created, updated)
      ) AS numbered ORDER BY key
      ON CONFLICT (key) DO UPDATE SET value = excluded.value,
        created = CASE WHEN excluded.key IN (SELECT unnest($5::bytea[])) THEN entry.created ELSE excluded.created END,
        updated = CASE WHEN excluded.key IN (SELECT unnest($5::bytea[])) THEN greatest(entry.updated, excluded.updated)
          ELSE excluded.updated END
      """
    case .fencedWrite:
      """
      WITH \(fence(place, unless: """
        cardinality($3::bytea[]) <= \(mostLookedFor)
          AND cardinality($3::bytea[]) = (SELECT count(*) FROM \(entries) WHERE key = ANY ($3::bytea[]))
        """)),
      now AS MATERIALIZED (SELECT \(moment) AS moment, sequence FROM fence),
      written AS (\(write("$3", "$4", place)) RETURNING entry.sequence)
      SELECT \(fenceCount), \(notify("$5", place))
      """
    case .fencedWriteOfOne:
      // The same for one entry, which takes the server a fifth less time.
      """
      WITH \(fence(
        place, unless: "EXISTS (SELECT FROM \(entries) WHERE key = $3::bytea)",
        andReturning: "\(moment) AS moment")),
      written AS (
        INSERT INTO \(entries) AS entry (sequence, created, updated, key, value)
        SELECT sequence, moment, moment, $3::bytea, $4::bytea FROM fence
        \(overwriting)
        RETURNING entry.sequence
      )
      SELECT \(fenceCount), \(notify("$5", place))
      """
    case .notify: "SELECT \(notify("$1", place))"

    case .value: "SELECT value FROM \(entries) WHERE key = $1::bytea"
    case .values:
      "SELECT request.number, entry.value FROM \(request) JOIN \(entries) AS entry ON entry.key = request.key"
    case .times:
      """
      SELECT request.number, entry.created, entry.updated
      FROM \(request) JOIN \(entries) AS entry ON entry.key = request.key
      """
    case .existing:
      "SELECT request.number FROM \(request) JOIN \(entries) AS entry ON entry.key = request.key"
    case .entriesOfKeys:
      """
      SELECT entry.key, entry.value, entry.created, entry.updated, entry.sequence
      FROM \(request) JOIN \(entries) AS entry ON entry.key = request.key
      """
    case .count: "SELECT count(*) FROM \(entries)"

    case .declareValues: "DECLARE rows NO SCROLL CURSOR FOR SELECT value FROM \(entries)"
    case .declareKeys: "DECLARE rows NO SCROLL CURSOR FOR SELECT key FROM \(entries)"
    case .declareKeysAndValues: "DECLARE rows NO SCROLL CURSOR FOR SELECT key, value FROM \(entries)"
    case .declareEntries:
      "DECLARE rows NO SCROLL CURSOR FOR SELECT key, value, created, updated, sequence FROM \(entries)"
    case .declareRange:
      """
      DECLARE rows NO SCROLL CURSOR FOR SELECT key, value FROM \(entries)
      WHERE key >= $1::bytea AND key > $2::bytea AND key <= $3::bytea ORDER BY key LIMIT $4::bigint
      """
    case .declareKeysFrom:
      "DECLARE rows NO SCROLL CURSOR FOR SELECT key FROM \(entries) WHERE key >= $1::bytea ORDER BY key"
    case .closeRows: "CLOSE rows"
    case .fetchFew: "FETCH FORWARD \(PostgreSQLPortion.few.rows) FROM rows"
    case .fetchSome: "FETCH FORWARD \(PostgreSQLPortion.some.rows) FROM rows"
    case .fetchMany: "FETCH FORWARD \(PostgreSQLPortion.many.rows) FROM rows"

    case .listen: "LISTEN \"\(place.channel)\""
    case .tryToMarkSubscriber:
      "SELECT pg_try_advisory_lock_shared(\(place.lock(of: .subscribers)))"
    case .markSubscriber: "SELECT pg_advisory_lock_shared(\(place.lock(of: .subscribers)))"
    }
  }

  /// Lets a commit succeed only if the writer has not been fenced off in the meantime. Takes the lock that all writers
  /// share, and the lock of writers of new keys.
  ///
  /// - Parameter areThere: Whether all keys already exist in the statement's snapshot, so that the latter lock is not
  ///   needed.
  private static func fence(
    _ place: PostgreSQLNamespace, unless areThere: String, andReturning more: String? = nil
  ) -> String {
    // The parts of a CASE are evaluated one after another.
    """
    fence AS (
      UPDATE \(place.table("commits")) SET epoch = $2::bigint + 1, used = now()
      WHERE writer = $1::bytea AND epoch = $2::bigint
      RETURNING CASE
        WHEN pg_advisory_xact_lock_shared(\(place.lock(of: .writers))) IS NULL THEN NULL
        WHEN \(areThere) THEN false
        ELSE pg_advisory_xact_lock(\(place.lock(of: .order))) IS NOT NULL
      END AS numbers, \(nextNumber(place)) AS sequence\(more.map { ", \($0)" } ?? "")
    )
    """
  }

  /// The maximum number of keys for which a statement checks whether they exist. More keys count as new.
  private static let mostLookedFor = 64

  /// The number of rows of `fence`: none if the writer has been fenced off. Fails, with an error that counts as
  /// ``PostgreSQLFailure/isConcurrency``, if a key is new that existed when the statement began: the key has been
  /// removed in the meantime, and got a number without the lock.
  private static let fenceCount = """
    CASE WHEN (SELECT NOT numbers AND EXISTS (SELECT FROM written WHERE written.sequence >= fence.sequence) FROM fence)
    THEN sqrt(-(SELECT count(*) FROM fence))::bigint ELSE (SELECT count(*) FROM fence) END
    """

  private static func nextNumber(_ place: PostgreSQLNamespace) -> String {
    "nextval('\(place.table("entry_sequence").replacingScalar("'", with: "''"))')"
  }

  /// Sends a notification of a change, unless there are no subscribers: then the lock of subscribers can be taken
  /// exclusively. As long as a transaction holds that lock, no subscription begins.
  private static func notify(_ payload: String, _ place: PostgreSQLNamespace) -> String {
    """
    CASE WHEN pg_try_advisory_xact_lock(\(place.lock(of: .subscribers))) THEN NULL
    ELSE pg_notify('\(place.channel)', \(payload)::text) END
    """
  }

  /// Writes entries. They are numbered in the given order, in which their keys are created (rule R6), and written in
  /// byte order, in which all writers lock rows, so that they cannot deadlock.
  ///
  /// - Note: The statement must begin with the query `now`, which contains the time of the commit.
  private static func write(_ keys: String, _ values: String, _ place: PostgreSQLNamespace) -> String {
    """
    INSERT INTO \(place.table("entries")) AS entry (sequence, created, updated, key, value)
    SELECT sequence, moment, moment, key, value FROM (
      SELECT \(nextNumber(place)) AS sequence, now.moment, new.key, new.value
      FROM now, unnest(\(keys)::bytea[], \(values)::bytea[]) AS new(key, value)
    ) AS numbered ORDER BY key
    \(overwriting)
    """
  }

  /// The server's clock, in nanoseconds.
  private static let moment = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

  /// The clock may have been set back, or belong to another machine (rule W2).
  private static let overwriting = """
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, updated = greatest(entry.updated, excluded.updated)
    """
}

/// The number of rows that are fetched at a time: large rows must not take much memory, and small ones not many round
/// trips.
enum PostgreSQLPortion {
  case few, some, many

  var rows: Int {
    switch self {
    case .few: 16
    case .some: 512
    case .many: 8_192
    }
  }

  var statement: PostgreSQLStatement {
    switch self {
    case .few: .fetchFew
    case .some: .fetchSome
    case .many: .fetchMany
    }
  }

  /// The portion for rows of this size.
  init(rowSize: Int) {
    self = [.many, .some].first { $0.rows * rowSize <= Self.memory } ?? .few
  }

  /// The approximate number of bytes of a portion, unless its rows are large.
  private static let memory = 4 << 20
}
