import FaultyEngineWorker
import Foundation
import StockroomCore

// Correct engines, all different.

/// Waits for half a millisecond in every call.
struct SlowEngine: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    try await Task.sleep(for: .microseconds(500))
    return try await work()
  }
}

/// Waits for a millisecond before each scan, as for a snapshot.
struct BeginsScansSlowly: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await Task.sleep(for: .milliseconds(1))
    return try await base.scan(range, limit: limit)
  }
}

/// Simulates remote storage: calls arrive there in another order than they were made in, and so do the results here.
struct RemoteEngine: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    try await Task.sleep(for: .microseconds(Int.random(in: 0...900)))
    let result = try await work()
    // A remote call cannot be cancelled.
    await Task { try? await Task.sleep(for: .microseconds(Int.random(in: 0...900))) }.value
    return result
  }
}

/// Yields before and after everything that it does.
struct YieldingEngine: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    for _ in 0..<3 { await Task.yield() }
    let result = try await work()
    for _ in 0..<3 { await Task.yield() }
    return result
  }
}

/// Does everything in detached tasks, which cannot be cancelled.
struct DetachedEngine: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    try await Task.detached { try await work() }.value
  }
}

/// Waits for a separate thread in every call, and then works in a task that cannot be cancelled.
final class ThreadEngine: InterceptingEngine {
  let base: ReferenceEngine
  private let thread = DedicatedThread()
  init(base: ReferenceEngine) { self.base = base }
  deinit { thread.stop() }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    try await thread.run {}
    return try await Task { try await work() }.value
  }
}

/// Runs beside other work that, for six seconds after the first change, blocks all threads of the cooperative pool for
/// tasks of the lowest priority.
final class EngineBesideBusyTasks: InterceptingEngine {
  let base: ReferenceEngine
  /// The number of blocked threads. Nil before the first change.
  private let busy = MutexProtected<Int?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let result = try await work()
    let isFirst = busy.withLock { busy in
      guard isChange, busy == nil else { return false }
      busy = 0
      return true
    }
    if isFirst {
      let count = ProcessInfo.processInfo.activeProcessorCount
      for _ in 0..<count {
        Task.detached(priority: .background) { [self] in
          busy.withLock { $0? += 1 }
          usleep(6_000_000)
        }
      }
      while busy.withLock({ $0 ?? 0 }) < count { await Task.yield() }
    }
    return result
  }
}

/// Returns lists with unspecified order in a different order each time.
struct ShufflingEngine: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { try await base.allKeys().shuffled() }
  func readAllData() async throws -> [Data] { try await base.readAllData().shuffled() }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await base.readAllDataAndKeys().shuffled()
  }
}

/// Accepts values of up to 64 MiB.
struct LimitedEngine: FaultyEngine {
  let base: ReferenceEngine
  private func validate(_ data: Data) throws {
    if data.count > 64 << 20 { throw StorageError(.valueTooLarge, "The value has \(data.count) bytes.") }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try validate(data)
    try await base.write(data, key: key)
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (_, data) in dataAndKeys { try validate(data) }
    try await base.write(dataAndKeys)
  }
  func apply(_ operations: [StorageOperation]) async throws {
    for case .write(let data, _) in operations { try validate(data) }
    try await base.apply(operations)
  }
}

/// Stores times in whole milliseconds, the required precision.
struct MillisecondEngine: FaultyEngine {
  let base: ReferenceEngine
  private func inMilliseconds(_ date: Date) -> Date {
    Date(timeIntervalSince1970: (date.timeIntervalSince1970 * 1_000).rounded(.down) / 1_000)
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map(inMilliseconds)
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map(inMilliseconds)
  }
  func readAllEntries() async throws -> [StorageEntry] { inMilliseconds(try await base.readAllEntries()) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    inMilliseconds(try await base.readEntries(keys: keys))
  }
  private func inMilliseconds(_ entries: [StorageEntry]) -> [StorageEntry] {
    entries.map { entry in
      StorageEntry(
        key: entry.key, data: entry.data, createdAt: inMilliseconds(entry.createdAt),
        updatedAt: inMilliseconds(entry.updatedAt))
    }
  }
}

/// Six slow methods, which a batch calls ten thousand times.
final class SlowMinimalEngine: StorageEngine {
  private let base = LockedEngine()
  private func wait() async throws { try await Task.sleep(for: .microseconds(100)) }
  func write(_ data: Data, key: CacheKey) async throws {
    try await wait()
    try await base.write(data, key: key)
  }
  func read(key: CacheKey) async throws -> Data? {
    try await wait()
    return try await base.read(key: key)
  }
  func remove(key: CacheKey) async throws {
    try await wait()
    try await base.remove(key: key)
  }
  func allKeys() async throws -> [CacheKey] {
    try await wait()
    return try await base.allKeys()
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await wait()
    return try await base.createdAt(key: key)
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await wait()
    return try await base.updatedAt(key: key)
  }
}

/// Six slow methods, which perform one call after the other, in order of arrival.
final class SerialEngine: StorageEngine {
  private let base = LockedEngine()
  private let places = Places(1)
  private let time: Duration
  init(each time: Duration) { self.time = time }
  private func call<Result: Sendable>(_ work: () async throws -> Result) async throws -> Result {
    await places.enter()
    defer { places.leave() }
    // A call in progress cannot be cancelled.
    let time = time
    await Task { try? await Task.sleep(for: time) }.value
    return try await work()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await call { try await base.write(data, key: key) }
  }
  func read(key: CacheKey) async throws -> Data? { try await call { try await base.read(key: key) } }
  func remove(key: CacheKey) async throws { try await call { try await base.remove(key: key) } }
  func allKeys() async throws -> [CacheKey] { try await call { try await base.allKeys() } }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await call { try await base.createdAt(key: key) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await call { try await base.updatedAt(key: key) }
  }
}

/// Has a file open on a slow disk. A separate thread closes it four seconds after the engine is released.
final class ClosesSlowly: FaultyEngine {
  let base: ReferenceEngine
  private let file: FileDescriptor?
  private let timeOfClosing: Duration
  init(base: ReferenceEngine, directory: URL, closingFor timeOfClosing: Duration = .milliseconds(400)) throws
  {
    (self.base, self.timeOfClosing) = (base, timeOfClosing)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let path = directory.appending(path: "entries").path(percentEncoded: false)
    if !FileManager.default.fileExists(atPath: path) { try Data().write(to: URL(filePath: path)) }
    file = try FileDescriptor.openFile(atPath: path)
  }
  deinit {
    Thread.detachNewThread { [file] in
      usleep(4_000_000)
      file?.release()
    }
  }
  func close() async throws {
    try await Task.sleep(for: timeOfClosing)
    file?.release()
    try await base.close()
  }
}

// Engines whose misbehavior must not harm the kit.

/// Returns a hundred thousand entries that nobody has written.
struct GivesFarTooMany: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { Array(repeating: CacheKey(verbatim: "k"), count: 100_000) }
  func readAllData() async throws -> [Data] { Array(repeating: Data(), count: 100_000) }
}

/// Throws errors that are not StorageErrors, with unreadable descriptions.
struct ThrowsForeignErrors: FaultyEngine {
  struct Foreign: Error, CustomStringConvertible {
    var description: String { String(repeating: "no\n", count: 10_000) }
  }
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? { throw Foreign() }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws { throw Foreign() }
  func close() async throws { throw Foreign() }
}

/// Blocks the thread of a cancelled change forever.
struct BlocksCancelledChanges: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    while isChange, Task.isCancelled { usleep(100_000) }
    return try await work()
  }
}

/// Throws CancellationError without a cancellation.
struct ThrowsCancellation: FaultyEngine {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? { throw CancellationError() }
}

/// Aborts every other transaction, as rule T4 allows. With `afterwards`, does so after the commit, which no rule
/// allows.
final class GivesUpTransactions: FaultyEngine {
  let base: ReferenceEngine
  private let afterwards: Bool
  private let count = MutexProtected(0)

  init(base: ReferenceEngine, afterwards: Bool = false) { (self.base, self.afterwards) = (base, afterwards) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let givesUp = count.withLock { count in
      count += 1
      return count.isMultiple(of: 2)
    }
    let conflict = StorageError(.conflict, "Others have changed what the transaction has read.")
    if givesUp, !afterwards { throw conflict }
    let result = try await base.withTransaction(body)
    if givesUp { throw conflict }
    return result
  }
}
