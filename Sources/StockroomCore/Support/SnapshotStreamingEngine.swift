/// An engine that reads the entries of a snapshot one after another, without holding all of them in memory.
package protocol SnapshotStreamingEngine: StorageEngine {
  /// Calls `body` with every entry, in the order in which the keys were first written (rule R6), on a thread
  /// that may block.
  ///
  /// Holds the keys in memory, and one entry. Throws the error that `body` throws, or `CancellationError` if
  /// the task is cancelled.
  func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws
}

extension [(sequence: UInt64, key: CacheKey)] {
  /// The keys in the order in which they were first written. O(N log N).
  package consuming func keysByCreation() -> [CacheKey] {
    sort { ($0.sequence, $0.key) < ($1.sequence, $1.key) }
    return map(\.key)
  }
}
