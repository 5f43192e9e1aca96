import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The connections that read, each on its own thread. Concurrent reads of many tasks are sent together.
final class PostgreSQLReaders: Sendable {
  /// A read of one key.
  enum SmallRead: Sendable {
    case value(CacheKey, PostgreSQLCall<Data?>)
    case times(CacheKey, PostgreSQLCall<EntryHeader?>)

    var pending: any PostgreSQLPendingCall {
      switch self {
      case .value(_, let call): call
      case .times(_, let call): call
      }
    }
  }

  private struct State {
    var small: [SmallRead] = []
    var large: [any LargeRead] = []
    var idle: [PostgreSQLReader] = []
    var readers: [PostgreSQLReader] = []
    /// The number of readers that are busy with large reads, and the maximum.
    var largeUnderWay = 0
    let maximumLarge: Int
    var isStopped = false

    var hasLargeWork: Bool { !large.isEmpty && largeUnderWay < maximumLarge }
    /// Whether there is waiting work that a reader may take.
    var hasWork: Bool { !small.isEmpty || hasLargeWork }
    /// The calls of the waiting reads.
    var pending: [any PostgreSQLPendingCall] { small.map(\.pending) + large.map(\.pending) }

    /// Makes a reader idle, unless the readers have been closed. Idle readers with a connection are used first.
    mutating func rest(_ reader: PostgreSQLReader) {
      if !isStopped { idle.insert(reader, at: reader.isConnected ? idle.count : 0) }
    }

    /// Whether no other reader has a connection.
    func isAlone(_ reader: PostgreSQLReader) -> Bool {
      !readers.contains { $0 !== reader && $0.isConnected }
    }
  }

  private let connector: PostgreSQLConnector
  private let maximum: Int
  private let state: MutexProtected<State>

  /// - Parameter maximum: The maximum number of connections.
  init(_ connector: PostgreSQLConnector, maximum: Int) {
    self.connector = connector
    self.maximum = maximum
    // One connection is left for small reads, if there are several.
    state = MutexProtected(State(maximumLarge: max(1, maximum - 1)))
  }

  // MARK: Calls

  func value(of key: CacheKey) async throws -> Data? {
    let call = PostgreSQLCall<Data?>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { enqueue { $0.small.append(.value(key, call)) } }
  }

  /// The timestamps of the entry, or nil if there is none.
  func times(of key: CacheKey) async throws -> EntryHeader? {
    let call = PostgreSQLCall<EntryHeader?>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { enqueue { $0.small.append(.times(key, call)) } }
  }

  /// Does a large read, on a connection that nothing else uses in the meantime. The body may be called again
  /// from the beginning.
  func read<Result: Sendable>(
    _ body: @escaping @Sendable (PostgreSQLConnection, ContinuousClock.Instant) throws -> Result
  ) async throws -> Result {
    let call = PostgreSQLCall<Result>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { enqueue { $0.large.append(LargeReadOf(call: call, body: body)) } }
  }

  /// Queues a read for the readers, and wakes an idle one if there is one.
  private func enqueue(_ append: (inout State) -> Void) {
    let reader = state.withLock { state -> PostgreSQLReader? in
      append(&state)
      // A large read may have to wait until fewer readers are busy with large reads.
      guard state.hasWork else { return nil }
      if let idle = state.idle.popLast() { return idle }
      guard state.readers.count < maximum else { return nil }
      let new = PostgreSQLReader(connector)
      state.readers.append(new)
      return new
    }
    if let reader { start(reader) }
  }

  private func start(_ reader: PostgreSQLReader) {
    do {
      try reader.start { [self] in serve(reader) }
    } catch {
      let failed = state.withLock { state -> [any PostgreSQLPendingCall] in
        // The next read tries to start the thread again.
        state.rest(reader)
        // A busy reader takes the waiting reads.
        guard state.idle.count >= state.readers.count else { return [] }
        defer { (state.small, state.large) = ([], []) }
        return state.pending
      }
      for call in failed { call.fail(error) }
    }
  }

  // MARK: Work

  private enum Work {
    case small([SmallRead])
    case large(any LargeRead)
  }

  /// Processes waiting reads until there are none. Call it on the reader's thread.
  private func serve(_ reader: PostgreSQLReader) {
    var (isNew, wasSmall) = (false, false)
    while true {
      if !reader.isConnected {
        // Readers with a connection may have taken the waiting reads.
        guard isNeeded(reader) else { return }
        connect(reader)
        isNew = true
        continue
      }
      guard let work = nextWork(for: reader, wasSmall: wasSmall) else { return }
      switch work {
      case .small(let reads):
        wasSmall = true
        let lost = reader.perform(reads, isNew: isNew, meanwhile: endOverdueCalls)
        if !lost.isEmpty { putBack { $0.small.insert(contentsOf: lost, at: 0) } }
      case .large(let read):
        wasSmall = false
        let isLost = reader.perform(read, isNew: isNew, meanwhile: endOverdueCalls)
        state.withLock { $0.largeUnderWay -= 1 }
        if isLost { putBack { $0.large.insert(read, at: 0) } }
      }
      isNew = false
    }
  }

  private func nextWork(for reader: PostgreSQLReader, wasSmall: Bool) -> Work? {
    state.withLock { state in
      // Tasks that continuously read single keys do not block a large read.
      if !state.small.isEmpty, !wasSmall || !state.hasLargeWork {
        defer { state.small = Array(state.small.dropFirst(Self.largestGroup)) }
        return .small(Array(state.small.prefix(Self.largestGroup)))
      }
      if state.hasLargeWork {
        state.largeUnderWay += 1
        return .large(state.large.removeFirst())
      }
      state.rest(reader)
      return nil
    }
  }

  /// The maximum number of small reads that are sent together.
  private static let largestGroup = 1_000

  /// Puts reads back at the front of the queue, for this reader or for an idle one.
  private func putBack(_ insert: (inout State) -> Void) {
    let other = state.withLock { state -> PostgreSQLReader? in
      insert(&state)
      guard state.idle.last?.isConnected == true else { return nil }
      return state.idle.popLast()
    }
    if let other { start(other) }
  }

  /// Ends the calls that have waited for a connection for too long.
  private func endOverdueCalls() {
    for call in state.withLock({ $0.pending }) {
      call.endIfDue()
      call.endIfLate()
    }
  }

  // MARK: Readers without a connection

  /// Whether a call waits that the reader may take. If not, it becomes idle.
  private func isNeeded(_ reader: PostgreSQLReader) -> Bool {
    state.withLock { state in
      state.small.removeAll { !$0.pending.isWanted }
      state.large.removeAll { !$0.pending.isWanted }
      if state.hasWork, !state.isStopped { return true }
      state.rest(reader)
      return false
    }
  }

  /// Tries to connect as long as any call waits.
  private func connect(_ reader: PostgreSQLReader) {
    guard let deadline = firstDeadline(for: reader) else { return }
    let isAlone = { [self] in state.withLock { $0.isAlone(reader) } }
    do {
      try reader.connect(until: deadline, isAlone: isAlone) { [self] in
        if firstDeadline(for: reader) == nil { throw CancellationError() }
      }
    } catch {
      // Other readers have taken the reads, or all calls have ended.
      if error is CancellationError { return }
      let isTemporary = ((error as? StorageError)?.underlying as? PostgreSQLFailure)?.isTemporary ?? false
      let waiting = state.withLock { $0.isAlone(reader) ? $0.pending : [] }
      let now = ContinuousClock.now
      for call in waiting where !isTemporary || now >= call.deadline { call.fail(error) }
    }
  }

  /// Lets the writing side count and release the connections. A connection ends when it is no longer in use.
  var holder: PostgreSQLConnectionShare.Holder {
    .init(
      count: { [weak self] in self?.state.withLock { $0.readers.count(where: \.isConnected) } ?? 0 },
      release: { [weak self] in self?.release() })
  }

  private func release() {
    let reader = state.withLock { state -> PostgreSQLReader? in
      let reader = state.idle.last(where: \.isReleasable) ?? state.readers.first(where: \.isReleasable)
      if let index = state.idle.firstIndex(where: { $0 === reader }) {
        // The last idle reader is used first, and this one has no connection now.
        let unconnected = state.idle.remove(at: index)
        state.idle.insert(unconnected, at: 0)
      }
      return reader
    }
    reader?.release()
  }

  /// The earliest deadline of the calls that wait for a reader without a connection; nil if there are none.
  private func firstDeadline(for reader: PostgreSQLReader) -> ContinuousClock.Instant? {
    let (waiting, isAlone) = state.withLock { state in
      (state.hasWork && !state.isStopped ? state.pending : [], state.isAlone(reader))
    }
    for call in waiting {
      if isAlone {
        // From now on the call waits until its deadline, and fails with the reason why there is no connection.
        call.beginConnecting()
      } else {
        call.endIfDue()
        call.endIfLate()
      }
    }
    return waiting.filter { $0.isWanted }.map(\.deadline).min()
  }

  /// Ends the threads and the connections. No call may be waiting.
  func close() {
    let readers = state.withLock { state in
      state.isStopped = true
      defer { (state.readers, state.idle) = ([], []) }
      return state.readers
    }
    for reader in readers { reader.stop() }
  }
}

/// A read of many entries.
protocol LargeRead: Sendable {
  var pending: any PostgreSQLPendingCall { get }
  /// Reads, and ends the call with the result.
  func run(on connection: PostgreSQLConnection) throws
}

private struct LargeReadOf<Answer: Sendable>: LargeRead {
  let call: PostgreSQLCall<Answer>
  let body: @Sendable (PostgreSQLConnection, ContinuousClock.Instant) throws -> Answer

  var pending: any PostgreSQLPendingCall { call }

  func run(on connection: PostgreSQLConnection) throws {
    let answer = try body(connection, call.deadline)
    call.end(.success(answer))
  }
}
