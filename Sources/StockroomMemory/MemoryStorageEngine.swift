import StockroomCore

/// Stores entries in memory for the lifetime of the engine.
///
/// For tests, previews, and data that need not survive the process. It has no `Durability`; every other rule
/// of the contract holds. Values are copied when they are written, so an entry retains only its own bytes,
/// and no other code can change them.
///
/// A read of one entry holds a lock for one lookup. A read of many entries works on a copy-on-write copy: it
/// returns a snapshot, and neither waits for writers nor delays them. A long batch is prepared on a copy of
/// the table, and concurrent writes are suspended until it is done.
public final class MemoryStorageEngine: BatchWritingEngine {
  /// The maximum number of operations of a batch that is applied under the lock, while readers wait. A longer batch is applied to
  /// a copy of the table.
  private static let longestBatchInPlace = 64
  /// The number of operations of a long batch between two checks of the clock.
  private static let writtenPortion = 256
  /// The number of entries of a bulk read between two checks of the clock.
  static let portion = 1024
  /// The number of short batches after which a write yields to other tasks.
  private static let batchesPerYield = 64

  private let state = MutexProtected(MemoryState())
  /// Runs the bodies of transactions, which may take long (rule T5).
  private let thread = DedicatedThread()
  package let changeHub = ChangeHub()

  /// Creates an empty engine that shares its entries with no other engine.
  public init() {}

  deinit {
    changeHub.finish()
    thread.stop()
    var table = state.withLock { $0.table.take() }
    free(&table)
  }

  /// All capabilities that do not need a disk.
  public var capabilities: EngineCapabilities {
    [.atomicBatches, .snapshotReads, .orderedScans, .transactions, .changeFeed, .preservesTimestamps]
  }

  /// Waits for batches and transactions in progress, then removes every entry (rule O3).
  ///
  /// O(1) apart from the wait; the memory is freed in the background in O(N).
  public func close() async throws {
    await acquireWriteLock()
    defer { releaseWriteLock() }
    var table = state.withLock { $0.table.take() }
    free(&table)
    changeHub.finish()
    // No job is waiting, because every transaction needs the write lock, which this call holds.
    thread.stop()
  }

  #if DEBUG
    /// Releases a table under the lock, while no other table is changed.
    func releaseLocked(_ table: inout MemoryTable?) {
      state.withLock { _ in table = nil }
    }
  #endif

  // MARK: Reading

  /// Calls `body` with the table, under the lock. For reads that cost no more than one lookup.
  func withTable<Result>(_ body: (borrowing MemoryTable) -> Result) throws -> Result {
    try state.withLock { state in
      guard let table = state.table else { throw MemoryState.closed }
      return body(table)
    }
  }

  /// Calls `body` with a snapshot of the table, without holding the lock.
  func withSnapshot<Result>(
    _ body: (MemoryTable, inout YieldTimer) async throws -> Result
  ) async throws -> Result {
    var timer = YieldTimer()
    try await timer.start()
    var snapshot: MemoryTable? = try withTable { copy $0 }
    defer { free(&snapshot) }
    // The snapshot is not nil before it is freed.
    return try await body(snapshot ?? MemoryTable(), &timer)
  }

  // MARK: Writing

  /// Applies the request as one batch: O(log N) and a copy of the value for each operation, O(1) for each
  /// `removeAll`, which frees its memory in the background.
  package func commit(_ request: WriteRequest) async throws {
    try Task.checkCancellation()
    guard let requested = request.knownOperations else { return try await commitTransaction(request) }
    guard Self.isShort(requested) else {
      try await commitOnCopy(requested, request.times)
      return changeHub.send([request], [requested])
    }
    let operations = requested.map(\.copyingValue)
    if let count = try state.withLock({ try $0.apply(operations, request.times) }) {
      changeHub.send([request], [operations])
      // A loop of writes that never suspends would occupy a thread of the cooperative pool.
      if count % Self.batchesPerYield == 0 { await Task.yield() }
      return
    }
    await acquireWriteLock()
    defer { releaseWriteLock() }
    try Task.checkCancellation()
    try applyInPlace(operations, request.times)
    changeHub.send([request], [operations])
  }

  /// A feed of every change, with its keys unless there are too many, since only this engine makes changes.
  public func changes() async throws -> StorageChanges {
    // Under the lock, so that it either subscribes before `close()` ends all streams, or throws.
    try withTable { _ in changeHub.subscribe(without: ChangeOrigin.current) }
  }

  /// Applies the operations to the table. The caller must hold the write lock.
  private func applyInPlace(_ operations: [StorageOperation], _ times: [EntryTimes?]) throws {
    try state.withLock { state in
      guard state.table != nil else { throw MemoryState.closed }
      state.table?.apply(operations, times[...])
    }
  }

  private static func isShort(_ operations: [StorageOperation]) -> Bool {
    operations.count <= longestBatchInPlace && !operations.contains(where: \.removesAll)
  }

  /// Waits for the write lock, then applies the operations to a copy of the table.
  @concurrent private func commitOnCopy(_ operations: [StorageOperation], _ times: [EntryTimes?]) async throws
  {
    await acquireWriteLock()
    defer { releaseWriteLock() }
    try await applyToCopy(operations, times)
  }

  /// Runs the transaction on the engine's dedicated thread, then applies its operations.
  @concurrent private func commitTransaction(_ request: WriteRequest) async throws {
    await acquireWriteLock()
    defer { releaseWriteLock() }
    let operations = try await operations(of: request)
    if Self.isShort(operations) {
      try applyInPlace(operations.map(\.copyingValue), request.times)
    } else {
      try await applyToCopy(operations, request.times)
    }
    changeHub.send([request], [operations])
  }

  private func operations(of transaction: WriteRequest) async throws -> [StorageOperation] {
    var table: MemoryTable? = try withTable { copy $0 }
    defer { free(&table) }
    return try await thread.run { [table] in
      [transaction].operations(reading: table ?? MemoryTable(), nil).flatMap(\.self)
    }
  }

  /// Applies the operations to a copy of the table, then replaces the table with it. The caller must hold the
  /// write lock.
  private func applyToCopy(_ operations: [StorageOperation], _ times: [EntryTimes?]) async throws {
    var timer = YieldTimer()
    try await timer.start()
    var next: MemoryTable? = try withTable { copy $0 }
    // The replaced table, or the copy if an error was thrown.
    defer { free(&next) }
    var index = 0
    while index < operations.count {
      let end = min(index + Self.writtenPortion, operations.count)
      next?.apply(
        operations[index..<end].map(\.copyingValue), times.isEmpty ? [] : times[index..<end])
      index = end
      try await timer.yieldIfDue()
    }
    try state.withLock { state in
      guard state.table != nil else { throw MemoryState.closed }
      swap(&state.table, &next)
    }
  }

  /// Suspends until this task alone may change the table.
  private func acquireWriteLock() async {
    await withCheckedContinuation { continuation in
      if state.withLock({ $0.acquireWriteLock(or: continuation) }) { continuation.resume() }
    }
  }

  private func releaseWriteLock() {
    state.withLock { $0.releaseWriteLock() }?.resume()
  }
}

/// The table of a memory engine, and the queue of tasks that are waiting to change it.
private struct MemoryState {
  /// Nil once the engine is closed.
  var table: MemoryTable? = MemoryTable()
  /// Whether a task holds the write lock, so that it alone may change the table.
  private var isLocked = false
  /// The tasks that are waiting for the write lock, in order of arrival.
  private var waiting: ArraySlice<CheckedContinuation<Void, Never>> = []
  private var batchCount = 0

  static var closed: StorageError { StorageError(.closed, "The memory engine has been closed.") }

  /// Applies the operations unless a task holds the write lock. Returns the number of batches applied this
  /// way, or nil.
  mutating func apply(_ operations: [StorageOperation], _ times: [EntryTimes?]) throws -> Int? {
    guard table != nil else { throw Self.closed }
    if isLocked { return nil }
    table?.apply(operations, times[...])
    batchCount += 1
    return batchCount
  }

  /// Returns whether the caller holds the write lock. If not, the continuation is resumed once it does.
  mutating func acquireWriteLock(or continuation: CheckedContinuation<Void, Never>) -> Bool {
    guard isLocked else {
      isLocked = true
      return true
    }
    waiting.append(continuation)
    return false
  }

  /// Returns the continuation of the task that holds the write lock next.
  mutating func releaseWriteLock() -> CheckedContinuation<Void, Never>? {
    let next = waiting.popFirst()
    isLocked = next != nil
    return next
  }
}

extension StorageEngine where Self == MemoryStorageEngine {
  /// An empty engine that keeps its entries in memory.
  public static func memory() -> MemoryStorageEngine { MemoryStorageEngine() }
}
