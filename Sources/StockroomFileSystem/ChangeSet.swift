#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import Synchronization

/// What one call wants written.
final class DiskRequest: Sendable {
  let request: WriteRequest
  /// Set once it has been done, in case the group that it was part of fails and is tried again one by one.
  let isDone = Atomic(false)

  init(_ request: WriteRequest) { self.request = request }
}

/// What the operations of a group come to: for each key what becomes of it.
struct ChangeSet {
  struct Change {
    let key: CacheKey
    let name: FileName
    /// The value to write, or nil to remove the entry.
    let data: Data?
    /// The times of the entry, unless they are those that a write at the time of the commit gives it.
    let times: EntryTimes?
    /// Whether the entry that is there now, if any, is removed on the way.
    let isRenewed: Bool
    /// The requests that this change is all of.
    let requests: [DiskRequest]
  }

  /// In the order in which new keys come to be.
  let changes: [Change]
  /// Whether everything is removed before the changes are made.
  let removesAll: Bool

  /// - Parameter operations: What each of the requests comes to.
  init(_ requests: [DiskRequest], _ operations: [[StorageOperation]]) {
    var merged = MergedOperations()
    var origins: [CacheKey: [DiskRequest]] = [:]
    for (request, operations) in zip(requests, operations) {
      let times = request.request.times
      for (index, operation) in operations.enumerated() {
        switch operation {
        case .write(let data, let key):
          merged.write(data, key: key, times: times.isEmpty ? nil : times[index])
          origins[key, default: []].append(request)
        case .remove(let key):
          merged.remove(key)
          origins[key, default: []].append(request)
        case .removeAll:
          merged.removeAll()
        }
      }
    }
    let removesAll = merged.removesAll
    self.removesAll = removesAll
    changes = merged.inOrder.map { key, change in
      Change(
        key: key, name: FileName(key), data: change.data, times: change.times,
        isRenewed: change.isRenewed || removesAll, requests: origins[key] ?? [])
    }
  }
}
