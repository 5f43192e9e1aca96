import StockroomCore

/// Keeps entries in memory, for as long as the engine lives.
///
/// For tests, previews, and data that may go with the process. Nothing is stored, so `Durability` has no
/// meaning here; every other rule of the contract holds.
///
/// A read of one entry holds a lock for as long as one look-up takes. A read of many works on a copy that costs
/// nothing to take, so it shows one moment, and neither waits for writers nor holds them up.
public final class MemoryStorageEngine: StorageEngine {
  /// The longest batch that readers wait for. A longer one is made ready beside the table that they see.
  private static let longestBatchInPlace = 64

  /// Nil once the engine is closed.
  private let table = Guarded<MemoryTable?>(MemoryTable())
  /// Held by the one who writes.
  private let writing = Guarded(())

  /// An empty engine. Every engine has entries of its own.
  public init() {}

  /// Everything that does not need a disk.
  public var capabilities: EngineCapabilities { [.atomicBatches, .snapshotReads, .orderedScans] }

  /// Forgets every entry and gives their memory back (rule O3). O(N).
  public func close() async throws {
    // Taken out first, so that freeing the entries happens outside the lock.
    _ = table.withLock { $0.take() }
  }

  /// Lets `body` look at the table while nobody changes it. For what takes no longer than one look-up.
  func look<Result>(_ body: (borrowing MemoryTable) -> Result) throws -> Result {
    try table.withLock { table in
      guard let table else { throw Self.closed }
      return body(table)
    }
  }

  /// Lets `body` look at the table as it is now, while others go on to change theirs.
  func withSnapshot<Result>(_ body: (MemoryTable) throws -> Result) throws -> Result {
    try Task.checkCancellation()
    #if DEBUG
      // Whoever lets go of a snapshot lets the writer change shared nodes in place. Reference counts see to that,
      // but the thread sanitizer does not see them; it sees a lock.
      var snapshot = try look { copy $0 }
      defer { table.withLock { _ in snapshot = MemoryTable() } }
    #else
      let snapshot = try look { copy $0 }
    #endif
    return try body(snapshot)
  }

  /// Does the operations as one batch.
  func commit(_ operations: [StorageOperation]) throws {
    try Task.checkCancellation()
    try writing.withLock { _ in
      if operations.count <= Self.longestBatchInPlace {
        try table.withLock { table in
          guard table != nil else { throw Self.closed }
          table?.apply(operations)
        }
      } else {
        var next = try look { copy $0 }
        next.apply(operations)
        // The old table is given back, so that freeing it happens outside the lock.
        _ = try table.withLock { [next] table in
          guard table != nil else { throw Self.closed }
          defer { table = next }
          return table
        }
      }
    }
  }

  private static var closed: StorageError { StorageError(.closed, "The memory engine has been closed.") }
}

extension StorageEngine where Self == MemoryStorageEngine {
  /// An empty engine that keeps its entries in memory.
  public static func memory() -> MemoryStorageEngine { MemoryStorageEngine() }
}
