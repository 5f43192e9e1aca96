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
    var data: Data?
    /// The times of the entry, unless they are those that a write at the time of the commit gives it.
    var times: EntryTimes?
    /// Whether the entry that is there now, if any, is removed on the way.
    var isRenewed: Bool
    /// Orders the writes as the keys were first written.
    var order: Int
    /// The requests that this change is all of.
    var requests: [DiskRequest] = []
  }

  private(set) var changes: [Change] = []
  private(set) var removesAll = false
  private var indices: [CacheKey: Int] = [:]
  private var operationCount = 0

  /// - Parameter operations: What each of the requests comes to.
  init(_ requests: [DiskRequest], _ operations: [[StorageOperation]]) {
    for (request, operations) in zip(requests, operations) {
      let times = request.request.times
      for (index, operation) in operations.enumerated() {
        add(operation, times.isEmpty ? nil : times[index], of: request)
      }
    }
  }

  private mutating func add(_ operation: StorageOperation, _ times: EntryTimes?, of request: DiskRequest) {
    operationCount += 1
    switch operation {
    case .write(let data, let key):
      let index = index(of: key)
      if changes[index].data == nil { changes[index].order = operationCount }
      changes[index].data = data
      changes[index].times = times ?? changes[index].times?.overwritten
      changes[index].requests.append(request)
    case .remove(let key):
      let index = index(of: key)
      changes[index].data = nil
      changes[index].times = nil
      changes[index].isRenewed = true
      changes[index].requests.append(request)
    case .removeAll:
      removesAll = true
      for index in changes.indices {
        changes[index].data = nil
        changes[index].times = nil
        changes[index].isRenewed = true
      }
    }
  }

  private mutating func index(of key: CacheKey) -> Int {
    if let index = indices[key] { return index }
    changes.append(
      Change(key: key, name: FileName(key), data: nil, isRenewed: removesAll, order: operationCount))
    indices[key] = changes.count - 1
    return changes.count - 1
  }
}
