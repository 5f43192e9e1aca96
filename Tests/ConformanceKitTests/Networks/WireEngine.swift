import Foundation
import StockroomCore

@testable import ConformanceKit

/// An engine that connects to a ``WireServer``, with optional faults.
final class WireEngine: StorageEngine {
  enum Fault: String, CaseIterable, Sendable {
    case none
    case waitsForEver, takesLongerThanItsLimit, takesOneReadForAMessage, ignoresCancellation,
      isCancelledAtItsLimit, saysNothingIsThere, saysNothingExists, takesSilenceForSuccess,
      waitsForEverToBeOpened, waitsForTheRest, waitsForEachByte, takesOneReadForAChange, takesOneReadForKeys
    case cannotCancelRemovals, cannotCancelSubscriptions, cannotCancelOpening, cannotCancelLargeWrites
    case keepsCancelledConnections, dropsLateAnswers
    case sendsWithoutALimit, countsFromItsTurn, leavesCallsAtClose
    case connectsWithoutALimit, connectsThoughCancelled
    case callsCancelledWritesUndone
    case repeatsBlindly, repeatsRemovalsBlindly, repeatsRemovalsOfAllBlindly, takesLostRemovalsForDone,
      callsLostAnswersFailures, callsLostAnswersSuccesses,
      givesUpReads, neverReadsAgain, readsAgainOnce, neverKnows, neverFindsOut, readsNoKeysAgain,
      takesTheEndForTheRest
    case staysDisconnected, keepsSilentConnections, losesItsWayToRemoveAll
    case showsThePassword, showsThePasswordWhileAway, showsThePasswordInDoubt, describesItsPassword,
      callsARefusalAnError
    case connectsForEachCall, connectsForEachList, connectsForEachSubscriber, abandonsCancelledConnections,
      forgetsLostConnections, forgetsSilentConnections, forgetsRefusedConnections, losesItsLimit
    // Faults of feeds after a lost connection
    case staysDeaf, listensOnce, listensAgainSilently, comparesCounts, asksWhatIsThere
  }

  static let promises: EngineCapabilities = [.networked, .atomicBatches, .persistent, .changeFeed]

  static let timeLimit = Duration.milliseconds(1_500)
  /// The maximum number of concurrent calls.
  private static let maximumCalls = 4
  /// One more connection receives changes.
  static let maximumConnections = maximumCalls + 1

  struct State {
    var idle: [Int32] = []
    /// Connections that are no longer used, but were not closed.
    var abandoned: [Int32] = []
    var feeds: [WireFeed] = []
    var hasLost = false
    var isOpening = true
    var isClosed = false
  }

  let port: UInt16
  private let place: String
  let password: String
  let fault: Fault
  let timeLimit: Duration
  let places = AsyncSemaphore(width: maximumCalls)
  private let listening = AsyncSemaphore(width: 1)
  private let hub = ChangeHub()
  let state = MutexProtected(State())

  init(
    _ directory: URL, port: UInt16, password: String = WireServer.password, fault: Fault,
    timeLimit: Duration = WireEngine.timeLimit
  ) async throws {
    self.port = port
    self.password = password
    self.timeLimit = timeLimit
    self.fault = fault
    place = CacheKey(directory.path).value + "/"
    _ = try await read(key: CacheKey(verbatim: "-"))
    state.withLock { $0.isOpening = false }
  }

  deinit { endAll() }

  var capabilities: EngineCapabilities { Self.promises }

  func close() async throws {
    state.withLock { $0.isClosed = true }
    endAll()
  }

  private func endAll() {
    let (sockets, feeds) = state.withLock { state in
      defer { (state.idle, state.abandoned, state.feeds) = ([], [], []) }
      return (state.idle + state.abandoned, state.feeds)
    }
    for socket in sockets { NetworkSocket.close(socket) }
    hub.finish()
    for feed in feeds { feed.stop() }
  }

  // MARK: Requirements

  func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  func remove(key: CacheKey) async throws {
    try await apply([.remove(key: key)])
  }

  func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }

  func removeAllData() async throws { try await apply([.removeAll]) }

  func apply(_ operations: [StorageOperation]) async throws {
    var request = WireServer.Request(kind: .change, change: UUID(), key: place)
    for operation in operations {
      switch operation {
      case .write(let data, let key):
        try key.validate()
        request.operations.append(.init(key: place + key.value, data: data))
      case .remove(let key):
        try key.validate()
        request.operations.append(.init(key: place + key.value, data: nil))
      case .removeAll: request.operations.append(.init(key: nil, data: nil))
      }
    }
    if operations.isEmpty { return }
    _ = try await call(request)
  }

  func read(key: CacheKey) async throws -> Data? { try await entry(key)?.data }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    do {
      return try await entry(key) != nil
    } catch let error as StorageError where error.code == .unavailable && fault == .saysNothingExists {
      return false
    }
  }
  func createdAt(key: CacheKey) async throws -> Date? { try await entry(key)?.createdAt }
  func updatedAt(key: CacheKey) async throws -> Date? { try await entry(key)?.updatedAt }

  func allKeys() async throws -> [CacheKey] {
    try await call(.init(kind: .readAll, key: place, isForKeys: true)).entries.map(key)
  }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await call(.init(kind: .readAll, key: place)).entries.map { (key($0), $0.data) }
  }

  private func key(_ entry: WireServer.Entry) -> CacheKey {
    CacheKey(verbatim: String(entry.key.dropFirst(place.count)))
  }

  func changes() async throws -> StorageChanges {
    let changes = hub.subscribe(without: nil)
    try await listening.pass { () -> Result<Void, any Error> in
      do {
        try await listen()
        return .success(())
      } catch {
        return .failure(error)
      }
    }.get()
    return changes
  }

  /// Returns when the server sends all changes. All subscribers share a connection.
  private func listen() async throws {
    if fault != .connectsForEachSubscriber, state.withLock({ !$0.feeds.isEmpty }) { return }
    let feed = WireFeed(port: port, place: place, fault: fault, hub)
    let begun: Result<Void, any Error> = await withTaskCancellationHandler {
      do {
        try await ThreadResult<Void>.wait { finish in
          Thread.detachNewThread { [timeLimit] in
            feed.run(until: .now + timeLimit) { hasBegun in
              finish(
                hasBegun
                  ? .success(()) : .failure(StorageError(.unavailable, "The server has not answered.")))
            }
          }
        }
        return .success(())
      } catch {
        return .failure(error)
      }
    } onCancel: {
      if fault != .cannotCancelSubscriptions { feed.stop() }
    }
    if feed.isStopped { throw CancellationError() }
    try begun.get()
    state.withLock { $0.feeds.append(feed) }
  }

  private func entry(_ key: CacheKey) async throws -> WireServer.Entry? {
    try key.validate()
    return try await call(.init(kind: .read, key: place + key.value)).entries.first
  }
}

extension WireEngine: CustomStringConvertible {
  var description: String {
    fault == .describesItsPassword ? "WireEngine, password \(password)" : "WireEngine"
  }
}
