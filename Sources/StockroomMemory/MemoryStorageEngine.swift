import StockroomCore

/// Keeps entries in memory, for as long as the engine lives.
///
/// For tests, previews, and data that may go with the process. Nothing is stored, so `Durability` has no
/// meaning here; every other rule of the contract holds. Values are copied on their way in, so that an entry takes
/// the memory of its own bytes and no other code can change them.
///
/// A read of one entry holds a lock for as long as one look-up takes. A read of many works on a copy that costs
/// nothing to take, so it shows a snapshot, and neither waits for writers nor holds them up. A long batch is made ready
/// beside the entries that others see; writes that come meanwhile are suspended until it is done.
public final class MemoryStorageEngine: BatchWritingEngine {
  /// The longest batch that readers wait for. A longer one is made ready beside the table that they see.
  private static let longestBatchInPlace = 64
  /// How many operations a long batch does between two looks at the clock.
  private static let writtenPortion = 256
  /// How many entries a read of many reads between two looks at the clock.
  static let portion = 1024
  /// How many short batches there are between two that let other tasks go first.
  private static let batchesPerYield = 64

  private let state = MutexProtected(MemoryState())
  /// For the bodies of transactions, which may take long (rule T5).
  private let thread = DedicatedThread()
  package let changeHub = ChangeHub()

  /// An empty engine. Every engine has entries of its own.
  public init() {}

  deinit {
    changeHub.finish()
    thread.stop()
    var table = state.withLock { $0.table.take() }
    free(&table)
  }

  /// Everything that does not need a disk.
  public var capabilities: EngineCapabilities {
    [.atomicBatches, .snapshotReads, .orderedScans, .transactions, .changeFeed, .preservesTimestamps]
  }

  /// Waits for the batches and transactions that are under way, and frees every entry (rule O3).
  /// O(1) apart from that; freeing them costs O(N), in the background.
  public func close() async throws {
    await takeTurn()
    defer { passTurn() }
    var table = state.withLock { $0.table.take() }
    free(&table)
    changeHub.finish()
    // No job is waiting, since transactions have the turn.
    thread.stop()
  }

  #if DEBUG
    /// Releases a table while no other is changed.
    func releaseLocked(_ table: inout MemoryTable?) {
      state.withLock { _ in table = nil }
    }
  #endif

  // MARK: Reading

  /// Lets `body` read the table while it is not changed. For what takes no longer than one look-up.
  func look<Result>(_ body: (borrowing MemoryTable) -> Result) throws -> Result {
    try state.withLock { state in
      guard let table = state.table else { throw MemoryState.closed }
      return body(table)
    }
  }

  /// Lets `body` look at the table as it is now, while others go on to change theirs.
  func withSnapshot<Result>(
    _ body: (MemoryTable, inout YieldTimer) async throws -> Result
  ) async throws -> Result {
    var timer = YieldTimer()
    try await timer.yield()
    var snapshot: MemoryTable? = try look { copy $0 }
    defer { free(&snapshot) }
    // Never nil until it is freed.
    return try await body(snapshot ?? MemoryTable(), &timer)
  }

  // MARK: Writing

  /// Does the request as one batch: O(log N) and a copy of the value for each operation, O(1) for all that `removeAll` removes,
  /// whose memory is freed in the background.
  package func commit(_ request: WriteRequest) async throws {
    try Task.checkCancellation()
    guard let requested = request.knownOperations else { return try await commitTransaction(request) }
    guard Self.isShort(requested) else {
      try await commitBeside(requested, request.times)
      return changeHub.send([request], [requested])
    }
    let operations = requested.map(\.withValueOfItsOwn)
    if let count = try state.withLock({ try $0.apply(operations, request.times) }) {
      changeHub.send([request], [operations])
      // A loop of writes that never suspends keeps its thread of the pool.
      if count % Self.batchesPerYield == 0 { await Task.yield() }
      return
    }
    await takeTurn()
    defer { passTurn() }
    try Task.checkCancellation()
    try applyInPlace(operations, request.times)
    changeHub.send([request], [operations])
  }

  /// Every change is made by this engine, so that all elements name their keys, as long as they are not too many.
  public func changes() async throws -> StorageChanges {
    // Before `close()` ends all streams, or not at all.
    try look { _ in changeHub.subscribe(without: ChangeOrigin.current) }
  }

  /// Does the operations at once. For the task that has the turn.
  private func applyInPlace(_ operations: [StorageOperation], _ times: [EntryTimes?]) throws {
    try state.withLock { state in
      guard state.table != nil else { throw MemoryState.closed }
      state.table?.apply(operations, times[...])
    }
  }

  private static func isShort(_ operations: [StorageOperation]) -> Bool {
    operations.count <= longestBatchInPlace && !operations.contains(where: \.removesAll)
  }

  /// Does the operations beside the table, when it is this task's turn.
  @concurrent private func commitBeside(_ operations: [StorageOperation], _ times: [EntryTimes?]) async throws
  {
    await takeTurn()
    defer { passTurn() }
    try await applyBeside(operations, times)
  }

  /// Runs the transaction on the engine's own thread, and then does what it comes to.
  @concurrent private func commitTransaction(_ request: WriteRequest) async throws {
    await takeTurn()
    defer { passTurn() }
    let operations = try await operations(of: request)
    if Self.isShort(operations) {
      try applyInPlace(operations.map(\.withValueOfItsOwn), request.times)
    } else {
      try await applyBeside(operations, request.times)
    }
    changeHub.send([request], [operations])
  }

  private func operations(of transaction: WriteRequest) async throws -> [StorageOperation] {
    var table: MemoryTable? = try look { copy $0 }
    defer { free(&table) }
    return try await thread.run { [table] in
      [transaction].operations(reading: table ?? MemoryTable(), nil).flatMap(\.self)
    }
  }

  /// Does the operations on a copy of the table, and puts it in the table's place. For the task that has the turn.
  private func applyBeside(_ operations: [StorageOperation], _ times: [EntryTimes?]) async throws {
    var timer = YieldTimer()
    try await timer.yield()
    var next: MemoryTable? = try look { copy $0 }
    // What was in the table before, or a copy that is not used.
    defer { free(&next) }
    var index = 0
    while index < operations.count {
      let end = min(index + Self.writtenPortion, operations.count)
      next?.apply(
        operations[index..<end].map(\.withValueOfItsOwn), times.isEmpty ? [] : times[index..<end])
      index = end
      try await timer.yieldIfDue()
    }
    try state.withLock { state in
      guard state.table != nil else { throw MemoryState.closed }
      swap(&state.table, &next)
    }
  }

  /// Suspends until no other task changes the table or is about to.
  private func takeTurn() async {
    await withCheckedContinuation { continuation in
      if state.withLock({ $0.takeTurn(or: continuation) }) { continuation.resume() }
    }
  }

  private func passTurn() {
    state.withLock { $0.passTurn() }?.resume()
  }
}

/// What a memory engine holds, and whose turn it is to change it.
private struct MemoryState {
  /// Nil once the engine is closed.
  var table: MemoryTable? = MemoryTable()
  /// Whether a task has the turn. No other changes the table then.
  private var isTaken = false
  /// The tasks that wait for their turn, in the order in which they came.
  private var waiting: ArraySlice<CheckedContinuation<Void, Never>> = []
  private var batchCount = 0

  static var closed: StorageError { StorageError(.closed, "The memory engine has been closed.") }

  /// Does the operations at once, unless a task has the turn. Returns how many batches have been done so, or nil.
  mutating func apply(_ operations: [StorageOperation], _ times: [EntryTimes?]) throws -> Int? {
    guard table != nil else { throw Self.closed }
    if isTaken { return nil }
    table?.apply(operations, times[...])
    batchCount += 1
    return batchCount
  }

  /// Whether it is the caller's turn now. If not, the continuation is resumed when it is.
  mutating func takeTurn(or continuation: CheckedContinuation<Void, Never>) -> Bool {
    guard isTaken else {
      isTaken = true
      return true
    }
    waiting.append(continuation)
    return false
  }

  /// Whose turn it is next.
  mutating func passTurn() -> CheckedContinuation<Void, Never>? {
    let next = waiting.popFirst()
    isTaken = next != nil
    return next
  }
}

extension StorageEngine where Self == MemoryStorageEngine {
  /// An empty engine that keeps its entries in memory.
  public static func memory() -> MemoryStorageEngine { MemoryStorageEngine() }
}
