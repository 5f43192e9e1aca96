#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The server that an engine connects to, for the checks of rules N1 to N6.
///
/// The checks run a proxy between the engine and the server. The proxy cuts connections, delays data or stops
/// answering. So the engine must be able to connect to a port that the check chooses:
///
/// ```swift
/// let server = ConformanceServer(
///   address: .unixSocket("/run/db/.s.PGSQL.5432"), timeLimit: .seconds(3), maximumConnections: 8,
///   start: { try await db.start() }, kill: { await db.kill() }
/// ) { directory, port in
///   try await MyEngine(host: "127.0.0.1", port: port, table: directory.lastPathComponent, timeLimit: .seconds(3))
/// }
/// let suite = ConformanceSuite("MyEngine", capabilities: [.networked], server: server) { … }
/// ```
public struct ConformanceServer: Sendable {
  /// Where a server listens.
  public enum Address: Sendable, Hashable {
    /// A TCP port of this machine, at 127.0.0.1.
    case loopback(port: UInt16)
    /// The path of a Unix domain socket.
    case unixSocket(String)
  }

  /// A way to open the engine that the server must refuse.
  public struct Refusal: Sendable {
    /// What is wrong with it, such as "a wrong password".
    public let reason: String
    /// The code of the error that opening must throw.
    public let code: StorageError.Code
    /// Text that the error must not contain, such as the password.
    public let secret: String?
    let makeEngine: @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine

    /// Describes a way to open the engine that the server must refuse.
    public init(
      _ reason: String, code: StorageError.Code = .permissionDenied, secret: String? = nil,
      makeEngine: @escaping @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
    ) {
      self.reason = reason
      self.code = code
      self.secret = secret
      self.makeEngine = makeEngine
    }
  }

  /// The address of the server, or of the one that has replaced it.
  public var address: Address { current.address.withLock { $0 } }
  /// The time limit of the engine's calls.
  public let timeLimit: Duration
  /// The maximum number of connections of an engine.
  public let maximumConnections: Int
  /// Text, such as the password, that must not occur in the description or in any error of an engine that the server
  /// accepts.
  public let secret: String?
  /// Ways to open the engine that the server must refuse.
  public let refusals: [Refusal]

  /// Only one check at a time may disturb the network.
  private let turn = AsyncSemaphore(width: 1)
  /// Held by the checks that use the server: any number of them, or one that kills it.
  private let users = AsyncSemaphore(width: 1_000)

  let start: @Sendable () async throws -> Void
  let kill: @Sendable () async throws -> Void
  let makeEngine: @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
  private let startReplacement: (@Sendable () async throws -> Address)?
  private let current: CurrentAddress

  private final class CurrentAddress: Sendable {
    let address: MutexProtected<Address>

    init(_ address: Address) { self.address = MutexProtected(address) }
  }

  /// Replaces this server with another one and returns its address. Nil if there is none.
  var failOver: (@Sendable () async throws -> Address)? {
    guard let startReplacement else { return nil }
    return { [current] in
      let address = try await startReplacement()
      current.address.withLock { $0 = address }
      return address
    }
  }

  /// Describes a server and how engines connect to it.
  ///
  /// - Parameters:
  ///   - address: Where the server listens.
  ///   - timeLimit: The time limit of calls of the engines that `makeEngine` opens. The checks wait for it
  ///     several times, so choose a few seconds. The checks of the built-in engine for PostgreSQL use 3
  ///     seconds.
  ///   - maximumConnections: The maximum number of connections of such an engine.
  ///   - secret: Text that neither the descriptions nor the errors of engines that `makeEngine` opens may
  ///     contain, such as the password in a connection string. (A server that requires no password accepts
  ///     any.)
  ///   - refusals: Ways to open the engine that the server must refuse.
  ///   - start: Starts the server if it is not running. Returns when it accepts connections.
  ///   - kill: Kills the server at once, without giving it time to shut down.
  ///   - failOver: Kills the server at once, replaces it with another one that has its entries, and returns
  ///     the address of that. It is called at most once.
  ///   - makeEngine: Opens an engine through a port of 127.0.0.1, on the entries that correspond to the
  ///     directory.
  public init(
    address: Address, timeLimit: Duration, maximumConnections: Int, secret: String? = nil,
    refusals: [Refusal] = [],
    start: @escaping @Sendable () async throws -> Void,
    kill: @escaping @Sendable () async throws -> Void,
    failOver: (@Sendable () async throws -> Address)? = nil,
    makeEngine: @escaping @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
  ) {
    current = CurrentAddress(address)
    startReplacement = failOver
    self.timeLimit = timeLimit
    self.maximumConnections = maximumConnections
    self.secret = secret
    self.refusals = refusals
    self.start = start
    self.kill = kill
    self.makeEngine = makeEngine
  }

  /// Waits until the check may use the server, shared or exclusively.
  func enter(_ check: CheckDefinition) async {
    if check.actsOnNetwork { await turn.enter() }
    await users.enter(check.killsServer ? users.width : 1)
  }

  /// Ends the use of the server, regardless of how the check ended.
  func leave(_ check: CheckDefinition) async {
    // If it does not start, the next check reports that.
    if check.killsServer { try? await start() }
    users.leave(check.killsServer ? users.width : 1)
    if check.actsOnNetwork { turn.leave() }
  }
}
