import HashTreeCollections
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The entries of a memory engine.
///
/// A persistent data structure: a copy shares all storage with the original and costs O(1). Each later change to either copies
/// O(log N) nodes, and the first one that inserts or removes a key copies the array of chunks of ``sortedKeys`` as well. So a bulk
/// read takes a copy and delays no other task.
struct MemoryTable: Sendable {
  struct Entry: Sendable {
    var data: Data
    var header: EntryHeader
  }

  private(set) var entries: TreeDictionary<CacheKey, Entry> = [:]
  private(set) var sortedKeys = SortedKeys()
  private var nextSequence: UInt64 = 0

  /// Applies the operations in order, in O(log N) each.
  ///
  /// - Parameter times: The times of each operation, as in ``WriteRequest/times``.
  mutating func apply(_ operations: [StorageOperation], _ times: ArraySlice<EntryTimes?>) {
    let now = Timestamp.now()
    for (index, operation) in operations.enumerated() {
      switch operation {
      case .write(let data, let key):
        write(data, key: key, at: now, times.isEmpty ? nil : times[times.startIndex + index])
      case .remove(let key): remove(key)
      case .removeAll: (entries, sortedKeys) = ([:], SortedKeys())
      }
    }
  }

  /// The indices of the entries, in the order in which the keys were first written. Indices are sorted
  /// because moving entries costs more.
  func indicesInOrderOfCreation() -> [TreeDictionary<CacheKey, Entry>.Index] {
    let places = entries.indices.map { (sequence: entries[$0].value.header.sequence, index: $0) }
    guard let first = places.map(\.sequence).min(), let last = places.map(\.sequence).max() else { return [] }
    // Sequence numbers with few gaps are sorted by placing each at its offset.
    if last - first < 4 * UInt64(places.count) {
      var slots = [TreeDictionary<CacheKey, Entry>.Index?](repeating: nil, count: Int(last - first) + 1)
      for place in places { slots[Int(place.sequence - first)] = place.index }
      return slots.compactMap { $0 }
    }
    return places.sorted { $0.sequence < $1.sequence }.map(\.index)
  }

  private mutating func write(_ data: Data, key: CacheKey, at now: Timestamp, _ times: EntryTimes?) {
    var isNew = false
    let sequence = nextSequence
    func first() -> Entry {
      isNew = true
      var header = EntryHeader(createdAt: now, sequence: sequence)
      header.replaceTimes(by: times)
      return Entry(data: data, header: header)
    }
    // Not `updateValue(forKey:with:)` or the subscript: in swift-collections 1.6 both keep a pointer to a
    // node that they have just replaced, and debug builds read through it when a reader may have freed the
    // node.
    entries.updateValue(forKey: key, default: first()) { entry in
      if isNew { return }
      entry.data = data
      entry.header.overwrite(at: now)
      entry.header.replaceTimes(by: times)
    }
    if isNew {
      nextSequence += 1
      sortedKeys.insert(key)
    }
  }

  private mutating func remove(_ key: CacheKey) {
    if entries.removeValue(forKey: key) != nil { sortedKeys.remove(key) }
  }
}

/// Reads of transactions.
extension MemoryTable: EntryReader {
  func data(of key: CacheKey) -> Data? { entries[key]?.data }

  func contains(_ key: CacheKey) -> Bool { entries[key] != nil }

  func count() -> Int { entries.count }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) rethrows {
    try sortedKeys.forEach(from: start, body)
  }
}

extension StorageOperation {
  var removesAll: Bool {
    if case .removeAll = self { true } else { false }
  }

  /// The operation with a copy of the value. The caller's data may be a slice, which retains the whole buffer
  /// and does not start at index 0, or may wrap a buffer that is changed later (rules V1, V3).
  var copyingValue: StorageOperation {
    guard case .write(let data, let key) = self else { return self }
    return .write(data.withUnsafeBytes { Data($0) }, key: key)
  }
}
