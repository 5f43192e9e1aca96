import Foundation
import StockroomCore
import Synchronization

/// A place that only counts its commits.
final class CountedPlace: ChangeSource {
  private let commits = Atomic<UInt64>(0)
  private let checksFail = Atomic(false)
  private let lockFails = Atomic(false)
  private let lockAttempts = Atomic(0)

  let writtenFiles: [String]

  /// - Parameter writtenFiles: The files that subscribers watch for commits.
  init(writtenFiles: [String] = []) { self.writtenFiles = writtenFiles }

  func latestCommit() throws -> UInt64? {
    if checksFail.load(ordering: .sequentiallyConsistent) { throw StorageError(.io, "In the test.") }
    return commits.load(ordering: .sequentiallyConsistent)
  }

  /// Sets whether `latestCommit()` throws.
  func setChecksFail(_ fail: Bool) { checksFail.store(fail, ordering: .sequentiallyConsistent) }

  func isSettled() throws -> Bool {
    _ = lockAttempts.wrappingAdd(1, ordering: .sequentiallyConsistent)
    if lockFails.load(ordering: .sequentiallyConsistent) { throw StorageError(.io, "In the test.") }
    return true
  }

  /// Sets whether `isSettled()` throws.
  func setLockFails(_ fail: Bool) { lockFails.store(fail, ordering: .sequentiallyConsistent) }

  /// The number of calls of `isSettled()`.
  var lockAttemptCount: Int { lockAttempts.load(ordering: .sequentiallyConsistent) }

  func close() {}

  /// Counts a commit of any program.
  func commit() { _ = commits.wrappingAdd(1, ordering: .sequentiallyConsistent) }

  /// Announces the removal of a key as the next commit.
  func announce(_ key: String, to feed: ChangeFeed) -> ChangeFeed.Announcement {
    let operations: [StorageOperation] = [.remove(key: CacheKey(verbatim: key))]
    let next = commits.load(ordering: .sequentiallyConsistent) + 1
    return feed.announce([.operations(operations)], [operations]) { next }
  }

  /// Commits the removal of a key.
  func commit(_ key: String, to feed: ChangeFeed) {
    let announcement = announce(key, to: feed)
    commit()
    feed.publish(announcement)
  }

  func subscribe(to feed: ChangeFeed) throws -> StorageChanges {
    try feed.subscribe(without: nil, of: ObjectIdentifier(self), to: { self }, afterCommits: {})
  }
}
