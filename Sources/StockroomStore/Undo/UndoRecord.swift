import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What one call has changed in the engine: all that is needed to make it unchanged again.
struct UndoRecord: Sendable {
  struct Entry: Sendable {
    let key: CacheKey
    /// The value before the call; nil if the key was absent.
    let before: Data?
    /// The value that the call has left.
    let after: Data?
    /// Whether the call has removed the entry and written it again, so that it is behind the others now.
    let isMoved: Bool
  }

  /// Those that are to be written again behind all others are in their former order.
  private(set) var entries: [Entry] = []

  /// The size of the keys and values.
  private(set) var byteCount = 0

  mutating func append(_ entry: Entry) {
    entries.append(entry)
    byteCount += entry.key.value.utf8.count + (entry.before?.count ?? 0) + (entry.after?.count ?? 0)
  }

  /// Sorts the entries as a table has them, which is that before the call.
  mutating func sort<Item>(as table: ItemTable<Item>) {
    if entries.count < 2 { return }
    entries = entries.map { (place: table.sequence(of: $0.key) ?? .max, entry: $0) }
      .sorted { $0.place < $1.place }.map(\.entry)
  }
}

/// Collects what a call changes.
struct UndoRecorder {
  /// The values of the keys that the call changes, before it. Nil: the key was absent.
  private var before: [CacheKey: Data?] = [:]
  private var byteCount = 0
  private let limit: Int

  init(limit: Int) { self.limit = limit }

  /// Whether what is to be recorded takes more memory than is allowed.
  var isTooLarge: Bool { byteCount > limit }

  func contains(_ key: CacheKey) -> Bool { before[key] != nil }

  mutating func add(_ key: CacheKey, _ data: Data?) {
    before[key] = .some(data)
    byteCount += key.value.utf8.count + (data?.count ?? 0)
  }

  /// What the operations change. Nil if it takes more memory than is allowed.
  func record(_ operations: [StorageOperation]) -> UndoRecord? {
    if isTooLarge { return nil }
    var after = before
    var removed: Set<CacheKey> = []
    for operation in operations {
      switch operation {
      case .write(let data, let key): after[key] = .some(data)
      case .remove(let key):
        after[key] = .some(nil)
        removed.insert(key)
      case .removeAll:
        after = after.mapValues { _ in nil }
        removed.formUnion(after.keys)
      }
    }
    var record = UndoRecord()
    for (key, former) in before {
      let present = after[key] ?? nil
      let isMoved = former != nil && present != nil && removed.contains(key)
      if former == present, !isMoved { continue }
      record.append(UndoRecord.Entry(key: key, before: former, after: present, isMoved: isMoved))
    }
    return record.byteCount > limit ? nil : record
  }
}
