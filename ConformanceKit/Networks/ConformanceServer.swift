#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The server that an engine reaches, for the checks of rules N1 to N6.
///
/// The checks put a proxy between the engine and the server, which cuts connections, delays them or says nothing. So the engine has
/// to be opened on an address that the check chooses:
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
    /// A port of this machine, at 127.0.0.1.
    case loopback(port: UInt16)
    /// The path of a socket.
    case unixSocket(String)
  }

  /// A way to open the engine that the server refuses.
  public struct Refusal: Sendable {
    /// What is wrong, such as "a wrong password".
    public let reason: String
    /// The code of the error.
    public let code: StorageError.Code
    /// What must not be in the error, such as the password.
    public let secret: String?
    let makeEngine: @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine

    /// What is wrong, the code that opening throws then, what it must not say, and how to open the engine so.
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

  /// Where the server listens, or the one that has taken its place.
  public var address: Address { current.address.withLock { $0 } }
  /// When calls of the engine give up.
  public let timeLimit: Duration
  /// How many connections an engine has at most.
  public let maximumConnections: Int
  /// What must be in no description and no error of an engine that the server accepts, such as its password.
  public let secret: String?
  /// Ways to open the engine that the server refuses.
  public let refusals: [Refusal]

  /// One check at a time does something to the network.
  private let turn = AsyncSemaphore(width: 1)
  /// The checks that use the server: any number of them, or one that kills it.
  private let users = AsyncSemaphore(width: 1_000)

  let start: @Sendable () async throws -> Void
  let kill: @Sendable () async throws -> Void
  let makeEngine: @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
  private let takeOver: (@Sendable () async throws -> Address)?
  private let current: CurrentAddress

  private final class CurrentAddress: Sendable {
    let address: MutexProtected<Address>

    init(_ address: Address) { self.address = MutexProtected(address) }
  }

  /// Lets another server take the place of this one, and returns its address. Nil if there is none.
  var failOver: (@Sendable () async throws -> Address)? {
    guard let takeOver else { return nil }
    return { [current] in
      let address = try await takeOver()
      current.address.withLock { $0 = address }
      return address
    }
  }

  /// A server and how engines reach it.
  ///
  /// - Parameters:
  ///   - address: Where the server listens.
  ///   - timeLimit: When calls of engines made by `makeEngine` give up. The checks wait for it several times: take some
  ///     seconds. Those of the built-in engine on PostgreSQL run with 3 seconds.
  ///   - maximumConnections: How many connections such an engine has at most.
  ///   - secret: What engines made by `makeEngine` must neither say of themselves nor put into errors, such as the password in a
  ///     connection string. A server that asks for no password takes any.
  ///   - refusals: Ways to open the engine that the server refuses.
  ///   - start: Starts the server if it is not running. Returns when it can be reached.
  ///   - kill: Ends the server at once, without giving it time for anything.
  ///   - failOver: Ends the server at once, lets another one that has its entries take its place, and returns where that listens. It is
  ///     called once at most.
  ///   - makeEngine: Opens an engine on the entries that stand for the directory, through a port of 127.0.0.1.
  public init(
    address: Address, timeLimit: Duration, maximumConnections: Int, secret: String? = nil,
    refusals: [Refusal] = [],
    start: @escaping @Sendable () async throws -> Void,
    kill: @escaping @Sendable () async throws -> Void,
    failOver: (@Sendable () async throws -> Address)? = nil,
    makeEngine: @escaping @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
  ) {
    current = CurrentAddress(address)
    takeOver = failOver
    self.timeLimit = timeLimit
    self.maximumConnections = maximumConnections
    self.secret = secret
    self.refusals = refusals
    self.start = start
    self.kill = kill
    self.makeEngine = makeEngine
  }

  /// Waits until the check may use the server, together with others or alone.
  func enter(_ check: CheckDefinition) async {
    if check.actsOnNetwork { await turn.enter() }
    await users.enter(check.killsServer ? users.width : 1)
  }

  /// Lets others use it, however the check has ended.
  func leave(_ check: CheckDefinition) async {
    // If it does not start, the next check says so.
    if check.killsServer { try? await start() }
    users.leave(check.killsServer ? users.width : 1)
    if check.actsOnNetwork { turn.leave() }
  }
}
