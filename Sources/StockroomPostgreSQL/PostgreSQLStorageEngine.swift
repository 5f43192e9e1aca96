import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores entries in a PostgreSQL database, which several machines can share.
///
/// Choose it for data that several machines share: replication, failover and backups are PostgreSQL's own. On one machine every
/// other engine is faster. Values can be up to 512 MiB; larger ones throw `StorageError.Code.valueTooLarge`.
///
/// ## The namespace
///
/// A namespace is a schema of the database with two tables and a sequence, which the first engine creates. The role
/// needs the right to create schemas (`GRANT CREATE ON DATABASE …`), or must own an empty schema of that name. If the
/// schema has tables of another program, opening throws `unsupported` and changes nothing.
///
/// ## Failures of the network and of the server
///
/// Each call ends within `timeLimit`, and immediately if its task is cancelled, except that a write that has been sent waits
/// for its outcome for one more second (rule N1). A transaction may take one `timeLimit` to begin, one for the body's reads and half
/// of one to commit, in addition to the time of the body itself; writes that are committed with it wait for that. A body that reads
/// nothing from the server for a minute loses its transaction: it runs again, or the call throws `StorageError.Code.unavailable`
/// if its time is over.
///
/// A read that is interrupted by a lost connection is repeated, and so is a read on a previously idle connection that answers
/// nothing for half of the read's time. For an interrupted write, the engine opens a new connection, finds out whether the write has
/// taken effect, and repeats it if not (rule N2). If it cannot find out in time, it throws `StorageError.Code.outcomeUnknown`: the
/// write has taken effect, or takes effect before the server notices that the connection is lost, or never does, but it does not
/// take effect after the engine has written anything else.
///
/// When the server is back, or another host of the connection string has become the primary, the engine continues by itself
/// (rule N3).
///
/// ## Durability
///
/// - `Durability.full`: `synchronous_commit = on`. Nothing acknowledged is lost if the server's machine crashes and restarts. To lose
///   nothing if its disk is lost, the server needs a standby that it waits for: `synchronous_standby_names` (rule N4).
/// - `Durability.process`: `synchronous_commit = off`. If the server crashes, the last commits may be lost, latest first.
///
/// ## Concurrency
///
/// Concurrent writes are combined into one statement and one commit, and concurrent reads of single keys into one
/// statement. Writers of several machines wait for each other only if they write the same keys, or if both write new
/// keys. A batch that removes, and a transaction, block all other writers of the namespace on all machines for as long
/// as they take, but no readers.
///
/// Timestamps are those of the server's clock, unless a write specifies them.
///
/// ## Costs
///
/// Each call takes at least one round trip, which concurrent calls share. A write or a removal costs O(log N) for each key and one
/// commit in all. ``removeAllData()`` costs O(N).
public final class PostgreSQLStorageEngine: BatchWritingEngine {
  private let database: PostgreSQLDatabase
  private let settings: PostgreSQLSettings

  package static let valueLimit: ValueLimit? = ValueLimit(of: "The PostgreSQL engine", 512 << 20)

  /// Connects to a database, and creates the tables of the namespace if they do not exist.
  ///
  /// O(1). Keep passwords out of the program, in `~/.pgpass` or in the environment (`PGPASSWORD`); errors contain no passwords.
  ///
  /// - Parameters:
  ///   - connection: The database, as libpq accepts it: `host=db1,db2 dbname=app user=app sslmode=verify-full`, or
  ///     `postgresql://app@db1,db2/app`. If there are several hosts, the engine uses the one that accepts writes.
  ///   - namespace: The schema: 1 to 63 bytes. Engines with different namespaces share nothing.
  ///   - durability: When a write is acknowledged.
  ///   - maximumConnections: The maximum number of connections (rule N6). One writes, one listens while there are subscribers, and
  ///     the others read. Fewer than 3 count as 3.
  ///   - timeLimit: How long a call may take, at least a millisecond; this includes opening. Waiting for one of the
  ///     engine's connections to become free takes at most half of it. The server's `statement_timeout` is set to this
  ///     limit, and its `lock_timeout` to half of it.
  ///   - isPooled: Whether the connection goes through a pooler that assigns each transaction another session of the server, such
  ///     as pgbouncer with `pool_mode = transaction`. Then no statements are prepared, each read takes one more statement (two
  ///     if the engine is read-only) and each write three, and there is no change feed.
  ///   - access: Whether the engine may write. A read-only engine creates no tables, and has neither transactions nor a change feed.
  ///     It needs a role with `USAGE` on the schema and `SELECT` on its table `entries`, and accepts a standby, which may lag behind.
  ///     If there are several hosts, it uses the first that answers.
  /// - Throws: `StorageError` with code `unavailable` if no server answers, if none of them accepts writes while
  ///   another host does not answer, or if the connection limit of the server, the role or the database remains
  ///   exhausted for the whole time limit; `permissionDenied` if the server refuses the user, the password, the
  ///   certificate or the creation of tables; `readOnly` if the server is a standby and the engine may write;
  ///   `unsupported` if the connection string is malformed, no schema can have the name of the namespace, the database
  ///   does not exist, a read-only engine finds no tables, or the tables belong to another program or a later format;
  ///   `CancellationError`.
  public init(
    _ connection: String, namespace: String = "stockroom", durability: Durability = .full,
    maximumConnections: Int = 8, timeLimit: Duration = .seconds(30), isPooled: Bool = false,
    access: StorageAccess = .readWrite
  ) async throws {
    settings = PostgreSQLSettings(
      durability: durability, timeLimit: max(timeLimit, .milliseconds(1)), isPooled: isPooled,
      access: access)
    let connector = try PostgreSQLConnector(
      PostgreSQLAddress(connection), PostgreSQLNamespace(namespace), settings)
    database = try PostgreSQLDatabase(connector, maximumConnections: maximumConnections)
    try await database.open()
  }

  /// All capabilities except `detectsCorruption`, which is the server's task; `durableWrites` only at `Durability.full`, and `changeFeed`
  /// only if the connection is not pooled. A read-only engine has neither `changeFeed` nor `transactions`.
  public var capabilities: EngineCapabilities {
    var capabilities: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess, .networked,
      .preservesTimestamps,
    ]
    if settings.access == .readWrite { capabilities.insert(.transactions) }
    if settings.durability == .full { capabilities.insert(.durableWrites) }
    if !settings.isPooled, settings.access == .readWrite { capabilities.insert(.changeFeed) }
    return capabilities
  }

  /// Commits the request together with those of concurrent calls.
  package func commit(_ request: WriteRequest) async throws {
    try await database.commit(request)
  }

  package var changeHub: ChangeHub { database.hub }

  /// Changes by engines on all machines are reported with their keys, as far as these fit into 8,000 bytes for each commit. Changes
  /// that other programs make to the table are not reported.
  ///
  /// While there are subscribers on any machine, a commit costs more, since PostgreSQL serializes the commits that send
  /// notifications.
  public func changes() async throws -> StorageChanges {
    try await database.changes()
  }

  /// Waits for calls in progress and ends the connections (rule O3).
  ///
  /// - Throws: `StorageError` with code `io` if the system cannot create a thread for it.
  public func close() async throws {
    try await database.close()
  }

  /// Calls `body` with the connections for reading.
  func read<Result>(_ body: (PostgreSQLReaders) async throws -> Result) async throws -> Result {
    try await database.read(body)
  }
}

extension PostgreSQLStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the database with its hosts, without user and password.
  public var description: String { "PostgreSQLStorageEngine on \(database.gate.path)" }
}

extension StorageEngine where Self == PostgreSQLStorageEngine {
  /// An engine on a PostgreSQL database. Has the parameters of the engine's initializer, and throws the same errors.
  public static func postgreSQL(
    _ connection: String, namespace: String = "stockroom", durability: Durability = .full,
    maximumConnections: Int = 8, timeLimit: Duration = .seconds(30), isPooled: Bool = false,
    access: StorageAccess = .readWrite
  ) async throws -> PostgreSQLStorageEngine {
    try await PostgreSQLStorageEngine(
      connection, namespace: namespace, durability: durability, maximumConnections: maximumConnections,
      timeLimit: timeLimit, isPooled: isPooled, access: access)
  }
}
