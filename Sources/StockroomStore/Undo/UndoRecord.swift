import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The changes of one call in the engine: all data that are needed to reverse it.
struct UndoRecord: Sendable {
  struct Entry: Sendable {
    let key: CacheKey
    /// The value before the call; nil if the key was absent.
    let before: Data?
    /// The value that the call has left.
    var after: Data?
    /// Whether the call has removed the entry and written it again, so that it is now after the others.
    let isMoved: Bool
  }

  /// The changed entries. Entries that an undo appends again are in their previous order.
  private(set) var entries: [Entry] = []

  /// The size of the keys and values.
  private(set) var byteCount = 0

  /// The position of the entry of each key, if there are many entries and older versions of them may be rewritten.
  private(set) var positions: [CacheKey: Int]?
  /// Up to this number, entries are searched one by one.
  private static let mostUnindexed = 64

  mutating func append(_ entry: Entry) {
    entries.append(entry)
    byteCount += entry.key.value.utf8.count + (entry.before?.count ?? 0) + (entry.after?.count ?? 0)
  }

  /// Sorts the entries in the order of the table before the call. No entry may be appended after that.
  ///
  /// - Parameter isIndexed: Whether to create an index, by which ``note(_:)`` finds entries without searching all of them.
  mutating func sort<Item>(as table: ItemTable<Item>, isIndexed: Bool) {
    if entries.count < 2 { return }
    entries = entries.enumerated().map {
      (place: table.sequence(of: $1.key) ?? .max, position: $0, entry: $1)
    }
    .sorted { ($0.place, $0.position) < ($1.place, $1.position) }.map(\.entry)
    if isIndexed, entries.count > Self.mostUnindexed {
      positions = Dictionary(entries.enumerated().map { ($1.key, $0) }) { first, _ in first }
    }
  }

  /// Records that entries have been rewritten in the newest version: where the value is still the one that the call has
  /// written, the new bytes become the expected ones. O(rewritten entries).
  ///
  /// - Parameter replaced: The rewritten entries. The entries of this record are removed from it.
  /// - Returns: The growth of ``byteCount``.
  mutating func note(_ replaced: inout [CacheKey: (old: Data, new: Data)]) -> Int {
    let before = byteCount
    if let positions, replaced.count < entries.count {
      for position in replaced.keys.compactMap({ positions[$0] }) { note(entryAt: position, &replaced) }
    } else {
      for position in entries.indices where !replaced.isEmpty { note(entryAt: position, &replaced) }
    }
    return byteCount - before
  }

  private mutating func note(entryAt position: Int, _ replaced: inout [CacheKey: (old: Data, new: Data)]) {
    guard let (old, new) = replaced.removeValue(forKey: entries[position].key),
      entries[position].after == old
    else { return }
    entries[position].after = new
    byteCount += new.count - old.count
  }
}

/// Collects the changes of a call.
struct UndoRecorder {
  /// The entries to read.
  enum Request {
    case values([CacheKey])
    /// Up to ``pageSize`` entries.
    case page(KeyRange)
  }

  /// The number of entries that are read at once before all are removed.
  static let pageSize = 1_000

  private let operations: [StorageOperation]
  /// The keys that the operations name.
  private let keys: [CacheKey]
  /// The values that must not have changed.
  private let expected: [CacheKey: Data?]
  private let limit: Int
  /// The number of keys whose values have been read.
  private var readCount = 0
  /// The entries that must still be read before all are removed.
  private var range: KeyRange?
  /// The values before the call, in the order in which they have been read. Nil if the key was absent.
  private var before: [(key: CacheKey, data: Data?)] = []
  private var recorded: Set<CacheKey> = []
  private var byteCount = 0
  /// The maximum number of values that are read at a time.
  private static let mostAtOnce = 64

  /// - Parameter record: The entries that must not have changed since then. The operations name all of its
  ///   keys.
  init(of operations: [StorageOperation], expecting record: UndoRecord?, limit: Int) {
    (self.operations, self.limit) = (operations, limit)
    keys = operations.keys
    expected = Dictionary(record?.entries.map { ($0.key, $0.after) } ?? []) { first, _ in first }
    if operations.removesAll { range = .all }
  }

  /// Whether the record would take more memory than is allowed.
  private var isTooLarge: Bool { byteCount > limit }

  /// The entries to read next; nil once all necessary ones are known.
  var next: Request? {
    // Expected values must be verified in any case.
    if isTooLarge, expected.isEmpty { return nil }
    if let range { return .page(range) }
    // The number of keys doubles with each read, up to a maximum, so that there are few reads, but few large values are read beyond
    // `limit`.
    let next = keys.dropFirst(readCount).prefix(min(max(1, readCount), Self.mostAtOnce))
    return next.isEmpty ? nil : .values(Array(next))
  }

  /// Adds a page of the entries that are removed.
  mutating func add(page: [(key: CacheKey, data: Data)]) {
    for (key, data) in page { add(key, data) }
    if let last = page.last { range?.after = last.key } else { range = nil }
  }

  /// Adds the values of keys; an absent key has none.
  ///
  /// - Throws: `OutdatedRecord` if one is not as expected.
  mutating func add(_ keys: [CacheKey], _ values: [CacheKey: Data]) throws {
    readCount += keys.count
    for key in keys {
      let data = values[key]
      if let expected = expected[key], data != expected { throw OutdatedRecord(key: key) }
      add(key, data)
    }
  }

  private mutating func add(_ key: CacheKey, _ data: Data?) {
    guard recorded.insert(key).inserted else { return }
    before.append((key, data))
    byteCount += key.value.utf8.count + (data?.count ?? 0)
  }

  /// The changes of the operations. Nil if they take more memory than is allowed.
  func record() -> UndoRecord? {
    if isTooLarge { return nil }
    var after: [CacheKey: Data?] = Dictionary(uniqueKeysWithValues: before.map { ($0.key, $0.data) })
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

extension [StorageOperation] {
  fileprivate var removesAll: Bool {
    contains { if case .removeAll = $0 { true } else { false } }
  }

  /// The keys that the operations name, each once.
  fileprivate var keys: [CacheKey] {
    var keys: [CacheKey] = []
    var found: Set<CacheKey> = []
    for operation in self {
      switch operation {
      case .write(_, let key), .remove(let key): if found.insert(key).inserted { keys.append(key) }
      case .removeAll: break
      }
    }
    return keys
  }
}
