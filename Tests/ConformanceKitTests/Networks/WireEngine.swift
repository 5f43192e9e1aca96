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

  private struct State {
    var idle: [Int32] = []
    /// Connections that are no longer used, but were not closed.
    var abandoned: [Int32] = []
    var feeds: [WireFeed] = []
    var hasLost = false
    var isOpening = true
    var isClosed = false
  }

  private let port: UInt16
  private let place: String
  private let password: String
  private let fault: Fault
  private let timeLimit: Duration
  private let places = AsyncSemaphore(width: maximumCalls)
  private let listening = AsyncSemaphore(width: 1)
  private let hub = ChangeHub()
  private let state = MutexProtected(State())

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

  // MARK: Calls

  private func call(_ request: WireServer.Request) async throws -> WireServer.Answer {
    var request = request
    request.password = password
    let begun = ContinuousClock.now
    let (hasLost, isOpening) = state.withLock { ($0.hasLost, $0.isOpening) }
    let isCancellable =
      switch fault {
      case .ignoresCancellation: false
      case .cannotCancelRemovals: request.kind != .change || request.operations.contains { $0.data != nil }
      case .cannotCancelOpening: !isOpening
      case .cannotCancelLargeWrites: !request.operations.contains { ($0.data?.count ?? 0) > 1 << 20 }
      default: true
      }
    let result: Result<WireServer.Answer, any Error>
    if fault == .losesItsWayToRemoveAll, hasLost, request.operations.contains(where: { $0.key == nil }) {
      throw unavailable
    }
    let isBesideOthers =
      fault == .losesItsLimit && hasLost || fault == .connectsForEachList && request.isForKeys
    if isBesideOthers {
      result = await make(request, begun, isCancellable: isCancellable)
    } else {
      result = await places.pass { [request] in
        await make(request, begun, isCancellable: isCancellable)
      }
    }
    if fault == .leavesCallsAtClose, state.withLock({ $0.isClosed }) {
      try await Task.sleep(for: .seconds(600))
    }
    return try result.get()
  }

  /// - Parameter begun: When the call began, which may have waited for its turn since.
  private func make(
    _ request: WireServer.Request, _ begun: ContinuousClock.Instant, isCancellable: Bool
  ) async -> Result<WireServer.Answer, any Error> {
    // A call that has waited does not wait for as long again.
    let latest = fault == .countsFromItsTurn ? ContinuousClock.now : begun + timeLimit / 2
    let deadline = min(ContinuousClock.now, latest) + timeLimit
    let socket = MutexProtected<(socket: Int32?, isCancelled: Bool)>((nil, false))
    let shared = Shared(socket)
    return await withTaskCancellationHandler {
      do {
        return .success(
          try await ThreadResult.wait { finish in
            Thread.detachNewThread { [self] in
              finish(Result { try perform(request, until: deadline, shared) })
            }
          })
      } catch {
        return .failure(error)
      }
    } onCancel: {
      switch fault {
      case _ where !isCancellable: break
      case .isCancelledAtItsLimit, .abandonsCancelledConnections, .keepsCancelledConnections,
        .dropsLateAnswers:
        shared.cancelLater()
      default: shared.cancel()
      }
    }
  }

  private final class Shared: Sendable {
    let state: MutexProtected<(socket: Int32?, isCancelled: Bool)>
    init(_ state: consuming MutexProtected<(socket: Int32?, isCancelled: Bool)>) { self.state = state }

    var isCancelled: Bool { state.withLock { $0.isCancelled } }

    func cancelLater() { state.withLock { $0.isCancelled = true } }

    func use(_ socket: Int32?) { state.withLock { $0.socket = socket } }

    func cancel() {
      // While locked, because the number of a closed socket may be reused.
      state.withLock { state in
        state.isCancelled = true
        if let socket = state.socket { NetworkSocket.shutDown(socket) }
      }
    }
  }

  /// Retries until the deadline. Must run on a thread that may block.
  private func perform(
    _ request: WireServer.Request, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) throws -> WireServer.Answer {
    var isInDoubt = false
    var losses = 0
    while true {
      if shared.isCancelled {
        let isUnknown = isInDoubt && fault != .callsCancelledWritesUndone
        throw isUnknown ? outcomeUnknown : CancellationError()
      }
      guard ContinuousClock.now < deadline else {
        if fault == .saysNothingIsThere, request.kind != .change { return .init() }
        if fault == .takesSilenceForSuccess { return .init() }
        throw isInDoubt ? outcomeUnknown : unavailable
      }
      do {
        if isInDoubt, !repeatsBlindly(request) {
          var question = request
          question.kind = .settle
          if try exchange(question, until: deadline, shared).hasHappened { return .init() }
          // The change will never happen, so a retry needs a new number.
          isInDoubt = false
          var again = request
          again.change = UUID()
          return try perform(again, until: deadline, shared)
        }
        return try exchange(request, until: deadline, shared)
      } catch Lost.before {
        state.withLock { $0.hasLost = true }
        if takesForDone(request) { return .init() }
        usleep(5_000)
      } catch Lost.during {
        state.withLock { $0.hasLost = true }
        if takesForDone(request) { return .init() }
        guard request.kind == .change else {
          if fault == .givesUpReads { throw StorageError(.io, "The connection has been lost.") }
          if fault == .neverReadsAgain || fault == .readsNoKeysAgain && request.isForKeys {
            throw unavailable
          }
          losses += 1
          if fault == .readsAgainOnce, losses > 1 { throw unavailable }
          usleep(1_000)
          continue
        }
        switch fault {
        case .callsLostAnswersFailures: throw unavailable
        case .callsLostAnswersSuccesses: return .init()
        case .neverKnows: throw StorageError(.io, "The connection has been lost.")
        case .neverFindsOut: throw outcomeUnknown
        default: isInDoubt = true
        }
      }
    }
  }

  /// Whether a change is repeated without checking if it has happened.
  private func repeatsBlindly(_ request: WireServer.Request) -> Bool {
    fault == .repeatsBlindly
      || fault == .repeatsRemovalsBlindly && request.operations.allSatisfy { $0.data == nil }
      || fault == .repeatsRemovalsOfAllBlindly && request.operations.contains { $0.key == nil }
  }

  private func takesForDone(_ request: WireServer.Request) -> Bool {
    fault == .takesLostRemovalsForDone && request.kind == .change
      && request.operations.allSatisfy { $0.data == nil }
  }

  private enum Lost: Error {
    case before, during
  }

  private var outcomeUnknown: StorageError {
    let text = "The answer has not come."
    return StorageError(
      .outcomeUnknown, text,
      underlying: fault == .showsThePasswordInDoubt ? StorageError(.io, "\(text) \(password)") : nil)
  }
  private var unavailable: StorageError {
    let text = "The server has not been reached."
    return StorageError(.unavailable, fault == .showsThePasswordWhileAway ? "\(text) \(password)" : text)
  }

  private func exchange(
    _ request: WireServer.Request, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) throws -> WireServer.Answer {
    let (idle, hasLost) = state.withLock { ($0.idle.popLast(), $0.hasLost) }
    if hasLost, fault == .staysDisconnected { throw Lost.before }
    guard let socket = try idle ?? connect(until: deadline, shared) else { throw Lost.before }
    shared.use(socket)
    if fault == .dropsLateAnswers { dropInput(of: socket) }
    var reader = LineReader(socket: socket)
    var line = try JSONEncoder().encode(request)
    line.append(UInt8(ascii: "\n"))
    let isSent =
      fault == .sendsWithoutALimit
      ? NetworkSocket.send(ArraySlice(line), to: socket)
      : NetworkSocket.send(line, to: socket, until: deadline)
    reader.takesOneReadForALine =
      fault == .takesOneReadForAMessage || fault == .takesOneReadForKeys && request.isForKeys
    if fault == .waitsForEachByte { reader.patience = timeLimit }
    let keepsCancelled = fault == .keepsCancelledConnections || fault == .dropsLateAnswers
    let received =
      fault == .abandonsCancelledConnections || keepsCancelled
      ? nextUnlessCancelled(&reader, until: deadline, shared)
      : isSent ? next(&reader, until: waitsForEver ? nil : deadline) : nil
    shared.use(nil)
    guard let received else {
      let mayBeKept = keepsCancelled && shared.isCancelled || fault == .keepsSilentConnections
      if mayBeKept, !NetworkSocket.isEndedByPeer(socket) {
        state.withLock { $0.idle.append(socket) }
      } else if forgets(socket, shared, isNew: idle == nil) {
        state.withLock { $0.abandoned.append(socket) }
      } else {
        NetworkSocket.close(socket)
      }
      if fault == .takesTheEndForTheRest, request.isForKeys, reader.isInTheMiddle { return .init() }
      throw Lost.during
    }
    // If the engine leaves connections open, it never uses them again.
    if fault != .connectsForEachCall { state.withLock { $0.idle.append(socket) } }
    let answer = try JSONDecoder().decode(WireServer.Answer.self, from: received)
    if let refusal = answer.refusal {
      let text = fault == .showsThePassword ? "\(refusal) \(password)" : refusal
      throw StorageError(fault == .callsARefusalAnError ? .io : .permissionDenied, text)
    }
    return answer
  }

  /// Discards what has arrived since the last call: an answer that came too late.
  private func dropInput(of socket: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let size = buffer.count
    while NetworkSocket.hasInput(socket), NetworkSocket.receive(socket, &buffer, size) > 0 {}
  }

  /// Whether a connection that is no longer needed is not closed.
  private func forgets(_ socket: Int32, _ shared: Shared, isNew: Bool) -> Bool {
    switch fault {
    case .forgetsRefusedConnections:
      // Not so many that the process has no descriptors left.
      isNew && NetworkSocket.isEndedByPeer(socket) && state.withLock { $0.abandoned.count < 20 }
    case .abandonsCancelledConnections: shared.isCancelled
    case .forgetsLostConnections: NetworkSocket.isEndedByPeer(socket)
    case .forgetsSilentConnections: !shared.isCancelled && !NetworkSocket.isEndedByPeer(socket)
    default: false
    }
  }

  /// A new connection; nil if there was none in time, or the call has been cancelled.
  private func connect(until deadline: ContinuousClock.Instant, _ shared: Shared) throws -> Int32? {
    if fault == .connectsWithoutALimit { return try NetworkSocket.connect(to: .loopback(port: port)) }
    let socket = try NetworkSocket.beginConnecting(to: port)
    do {
      let isConnected = try NetworkSocket.finishConnecting(socket) {
        ContinuousClock.now < deadline && (fault == .connectsThoughCancelled || !shared.isCancelled)
      }
      if isConnected { return socket }
    } catch {
      NetworkSocket.close(socket)
      throw error
    }
    NetworkSocket.close(socket)
    return nil
  }

  private func next(_ reader: inout LineReader, until deadline: ContinuousClock.Instant?) -> Data? {
    guard fault == .waitsForTheRest, let deadline else { return reader.next(until: deadline) }
    return NetworkSocket.wait(reader.socket, until: deadline) ? reader.next(until: nil) : nil
  }

  private var waitsForEver: Bool {
    fault == .waitsForEver || fault == .waitsForEverToBeOpened && state.withLock { $0.isOpening }
  }

  /// The next line, or nil if the call is cancelled before that, which leaves the connection unchanged.
  private func nextUnlessCancelled(
    _ reader: inout LineReader, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) -> Data? {
    while !shared.isCancelled, ContinuousClock.now < deadline, !NetworkSocket.isEndedByPeer(reader.socket) {
      if let line = reader.next(until: min(deadline, .now + .milliseconds(5))) { return line }
    }
    return nil
  }
}

extension WireEngine: CustomStringConvertible {
  var description: String {
    fault == .describesItsPassword ? "WireEngine, password \(password)" : "WireEngine"
  }
}
