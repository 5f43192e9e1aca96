#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import Synchronization

/// The changes of one call.
final class DiskRequest: Sendable {
  let request: WriteRequest
  /// Set once the request has been committed, in case its group fails and the requests are retried one by one.
  let isDone = Atomic(false)

  init(_ request: WriteRequest) { self.request = request }
}

/// The result of the operations of a group: one change for each key.
struct ChangeSet {
  struct Change {
    let key: CacheKey
    let name: FileName
    /// The value to write, or nil to remove the entry.
    let data: Data?
    /// The timestamps of the entry; nil if the entry is written with the time of the commit.
    let times: EntryTimes?
    /// Whether an existing entry is removed before the write.
    let isRenewed: Bool
    /// The requests with an operation on this key. Without a journal, each of them consists of that operation alone.
    let requests: [DiskRequest]
  }

  /// In the order in which new keys are created.
  let changes: [Change]
  /// Whether everything is removed before the changes are made.
  let removesAll: Bool

  /// - Parameter operations: The operations of each of the requests.
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
