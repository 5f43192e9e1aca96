import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The connections that read, each on a thread of its own. What many tasks read at the same time travels together.
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
    /// How many readers are busy with large reads.
    var largeUnderWay = 0
    var isStopped = false

    /// Keeps a reader for the next read, unless there will be none.
    mutating func rest(_ reader: PostgreSQLReader) { if !isStopped { idle.append(reader) } }
  }

  private let connector: PostgreSQLConnector
  private let maximum: Int
  private let state = MutexProtected(State())

  /// - Parameter maximum: How many connections there may be.
  init(_ connector: PostgreSQLConnector, maximum: Int) {
    self.connector = connector
    self.maximum = maximum
  }

  // MARK: Calls

  func value(of key: CacheKey) async throws -> Data? {
    let call = PostgreSQLCall<Data?>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { try enqueue { $0.small.append(.value(key, call)) } }
  }

  /// The times of the entry, or nil if there is none.
  func times(of key: CacheKey) async throws -> EntryHeader? {
    let call = PostgreSQLCall<EntryHeader?>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { try enqueue { $0.small.append(.times(key, call)) } }
  }

  /// Reads much, on a connection that nothing else uses meanwhile. The body may be called again from the beginning.
  func read<Result: Sendable>(
    _ body: @escaping @Sendable (PostgreSQLConnection, ContinuousClock.Instant) throws -> Result
  ) async throws -> Result {
    let call = PostgreSQLCall<Result>(isRead: true, within: connector.settings.timeLimit)
    return try await call.wait { try enqueue { $0.large.append(LargeReadOf(call: call, body: body)) } }
  }

  /// Puts a read where readers find it, and wakes one up if one has nothing to do.
  private func enqueue(_ append: (inout State) -> Void) throws {
    let reader = state.withLock { state -> PostgreSQLReader? in
      append(&state)
      // What a reader would not be allowed to take waits for one that is busy.
      guard !state.small.isEmpty || state.largeUnderWay < maximumLarge else { return nil }
      if let idle = state.idle.popLast() { return idle }
      guard state.readers.count < maximum else { return nil }
      let new = PostgreSQLReader(connector)
      state.readers.append(new)
      return new
    }
    guard let reader else { return }
    do {
      try reader.start { [self] in serve(reader) }
    } catch {
      // The next read tries again to have a thread.
      state.withLock { $0.rest(reader) }
      throw error
    }
  }

  /// One connection is left for small reads, if there are several.
  private var maximumLarge: Int { max(1, maximum - 1) }

  // MARK: Work

  private enum Work {
    case small([SmallRead])
    case large(any LargeRead)
  }

  /// Does what waits until nothing does. On the reader's thread.
  private func serve(_ reader: PostgreSQLReader) {
    var wasLarge = false
    while let work = nextWork(for: reader, wasLarge: wasLarge) {
      switch work {
      case .small(let reads):
        wasLarge = false
        reader.perform(reads, meanwhile: endOverdueCalls)
      case .large(let read):
        wasLarge = true
        reader.perform(read, meanwhile: endOverdueCalls)
      }
    }
  }

  private func nextWork(for reader: PostgreSQLReader, wasLarge: Bool) -> Work? {
    state.withLock { state in
      if wasLarge { state.largeUnderWay -= 1 }
      if !state.small.isEmpty {
        defer { state.small = Array(state.small.dropFirst(Self.largestGroup)) }
        return .small(Array(state.small.prefix(Self.largestGroup)))
      }
      if !state.large.isEmpty, state.largeUnderWay < maximumLarge {
        state.largeUnderWay += 1
        return .large(state.large.removeFirst())
      }
      state.rest(reader)
      return nil
    }
  }

  /// How many small reads travel together at most.
  private static let largestGroup = 1_000

  /// Ends the calls that have waited for a connection for too long.
  private func endOverdueCalls() {
    let waiting = state.withLock { $0.small.map(\.pending) + $0.large.map(\.pending) }
    for call in waiting { call.endIfDue() }
  }

  /// Ends the threads and the connections. Nobody waits for a read any more.
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
  /// Reads, and ends the call with what has been read.
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
