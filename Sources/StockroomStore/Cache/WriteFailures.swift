import StockroomCore

/// The `underlying` error of the error that ``PersistentCache/sync()`` throws if several writes have failed.
public struct CacheWriteFailures: Error, CustomStringConvertible {
  /// The first failures, in order; at most 100.
  public let first: [any Error]
  /// The number of all failures.
  public let count: Int

  /// The number of failures and the first of them.
  public var description: String {
    "\(count) failures: " + first.prefix(3).map { "\($0)" }.joined(separator: "; ") + (count > 3 ? "; …" : "")
  }
}

/// Failures that have not been thrown yet.
struct FailureLog: Sendable {
  private var first: [any Error] = []
  private var count = 0

  var isEmpty: Bool { count == 0 }

  mutating func append(_ error: any Error) {
    count += 1
    if first.count < 100 { first.append(error) }
  }

  /// Removes all failures and returns one error for them, or nil if there are none.
  mutating func take() -> (any Error)? {
    defer { self = FailureLog() }
    guard count > 1, let cause = first.first else { return first.first }
    return StorageError(
      (cause as? StorageError)?.code ?? .io, "\(count) changes of a cache could not be written.",
      underlying: CacheWriteFailures(first: first, count: count))
  }
}
