import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Keeps entries in a PostgreSQL database, which several machines may share.
///
/// The engine for data that several machines share: replication, failover and backups are PostgreSQL's own. On one
/// machine every other engine is faster. Values up to 512 MiB; a larger one throws
/// `StorageError.Code.valueTooLarge`.
///
/// ## The place
///
/// A namespace is a schema of the database with two tables and a sequence, which the first engine makes. Its role needs the right to
/// create schemas (`GRANT CREATE ON DATABASE …`), or owns an empty schema of that name. A schema with tables of another
/// program is refused and left alone.
///
/// ## Failures of the network and of the server
///
/// Each call ends within `timeLimit`, and at once if its task is cancelled; a write that has been sent waits for its outcome
/// for another second (rule N1). A transaction may take one limit to begin, one for what its body reads, and half of one to commit, beside
/// what the body itself takes; writes that are committed with it wait for that. A body that reads nothing from the server for a minute
/// loses its transaction: it is run again, or throws `StorageError.Code.unavailable` once its time is over. Reads
/// that a lost connection has interrupted are done again, and so are those on which a connection
/// that was idle before says nothing for half of their time. Of a write the engine finds out
/// whether it has happened, on a new connection, and does it if not (rule N2). Only if it cannot find out in time, it throws
/// `StorageError.Code.outcomeUnknown`: then the write has happened, or happens within the time that the server takes to
/// notice that the connection is lost, or never, but not once the engine has written anything else. When the server is back, or another one of those in the connection
/// string has become the primary, the engine goes on by itself (rule N3).
///
/// ## Durability
///
/// - `Durability.full`: `synchronous_commit = on`. Nothing acknowledged is lost when the server's machine dies and comes back. To
///   lose nothing when it does not come back, the server needs a standby that it waits for: `synchronous_standby_names`
///   (rule N4).
/// - `Durability.process`: `synchronous_commit = off`. When the server dies, the last commits may be lost, latest first.
///
/// ## Concurrency
///
/// Writes of tasks that write at the same time are one statement and one commit. Reads of single keys at the same time are one
/// statement. Writers of several machines keep each other waiting only for the keys that they have in common. A batch that removes, and a
/// transaction, keep all other writers of the namespace waiting, on all machines, for as long as they take, and no reader.
///
/// Times are those of the server's clock.
///
/// ## Costs
///
/// Each call is at least one round trip, which concurrent calls share. A write or a removal costs O(log N) for each key and one
/// commit for all. ``removeAllData()`` costs O(N).
public final class PostgreSQLStorageEngine: BatchWritingEngine {
  private let database: PostgreSQLDatabase
  private let settings: PostgreSQLSettings

  package static let valueLimit: ValueLimit? = ValueLimit(of: "The PostgreSQL engine", 512 << 20)

  /// Connects to a database, and makes the tables of the namespace if they are not there.
  ///
  /// O(1). Passwords are best kept out of the program, in `~/.pgpass` or the environment (`PGPASSWORD`); none
  /// appears in an error.
  ///
  /// - Parameters:
  ///   - connection: Which database, as libpq takes it: `host=db1,db2 dbname=app user=app sslmode=verify-full`, or
  ///     `postgresql://app@db1,db2/app`. Of several hosts the engine uses the one that can be written to.
  ///   - namespace: The schema: 1 to 63 bytes. Engines with different ones share nothing.
  ///   - durability: When a write is acknowledged.
  ///   - maximumConnections: How many connections the engine has at most (rule N6). One writes, one listens as long as anybody
  ///     subscribes, and the rest read. Fewer than 3 count as 3.
  ///   - timeLimit: How long a call may take, at least a millisecond; opening, too. A connection is waited for half of it at most. It is
  ///     the `statement_timeout` of the server as well, and half of it its `lock_timeout`.
  ///   - isPooled: Whether there is a pooler in between that gives each transaction another session of the server, as
  ///     pgbouncer does with `pool_mode = transaction`. Nothing is prepared then, each read takes one more statement and
  ///     each write three, and there is no change feed.
  ///   - access: Whether the engine may write. One that only reads makes no tables, and has neither transactions nor a change feed.
  ///     It takes a role with `USAGE` on the schema and `SELECT` on its table `entries`, and a standby will do, which may be behind. Of several
  ///     hosts it uses the first that answers.
  /// - Throws: `StorageError` with code `unavailable` if no server answers, or none that can be written to while another one is away, `permissionDenied` if it refuses the user, the
  ///   password, the certificate or the right to make the tables, `readOnly` if it is a standby and the engine is to write, `unsupported` if the connection string is
  ///   malformed, the database does not exist, an engine that only reads finds no tables, or the tables are another program's; `CancellationError`.
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

  /// Everything but finding corruption, which is the server's; `EngineCapabilities.durableWrites` only at
  /// `Durability.full`, `EngineCapabilities.changeFeed` only without a pooler of transactions. An engine that only reads has neither
  /// `changeFeed` nor `transactions`.
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

  /// Engines on all machines name the keys that they change, as far as these fit into 8,000 bytes for each commit. What other
  /// programs change in the table is not noticed.
  ///
  /// A commit costs more while anybody subscribes, on whichever machine: PostgreSQL commits those that announce something one after
  /// the other.
  public func changes() async throws -> StorageChanges {
    try await database.changes()
  }

  /// Waits for what is under way and ends the connections (rule O3).
  ///
  /// - Throws: `StorageError` with code `io` if the system has no thread to do so.
  public func close() async throws {
    try await database.close()
  }

  /// Lets `body` read.
  func read<Result>(_ body: (PostgreSQLReaders) async throws -> Result) async throws -> Result {
    try await database.read(body)
  }
}

extension PostgreSQLStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the database with its hosts, without user and password.
  public var description: String { "PostgreSQLStorageEngine on \(database.gate.path)" }
}

extension StorageEngine where Self == PostgreSQLStorageEngine {
  /// The engine on a PostgreSQL database. Takes what its initializer takes, and throws as that does.
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
