import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Where the entries of a namespace are in the engine below: under the name, a slash and the key.
///
/// A key that is too long for that is cut, and followed by a digest of itself; the key itself is in the value then. Such an entry below has
/// a key of exactly 511 bytes, and no other entry of the namespace has.
final class NamespacedKeys: Sendable {
  /// The name and the slash.
  let prefix: String
  private let prefixBytes: [UInt8]
  /// The engine below, for errors.
  let place: String?
  /// The longest key in bytes that is stored as it is.
  private let longestWhole: Int
  /// How much of a longer one is stored, in bytes.
  private let cutLength: Int
  /// Keys that differ in so many bytes have the same order here and below.
  private let orderedLength: Int

  static let maximumNameLength = 32
  private static let digestLength = 36

  init(name: String, place: String?) throws {
    guard 1...Self.maximumNameLength ~= name.utf8.count, !name.utf8.contains(UInt8(ascii: "/"))
    else {
      throw StorageError(
        .invalidKey,
        "The name of a namespace has 1 to \(Self.maximumNameLength) bytes, and no slash: \(name.prefix(40).debugDescription)."
      )
    }
    (prefix, self.place) = (name + "/", place)
    prefixBytes = Array(prefix.utf8)
    let rest = CacheKey.maximumLength - prefixBytes.count
    longestWhole = rest - 1
    cutLength = rest - Self.digestLength
    // Cut between scalars, of which the longest has four bytes.
    orderedLength = cutLength - 3
  }

  // MARK: Entries

  func isCut(_ key: CacheKey) -> Bool { key.value.utf8.count > longestWhole }

  private static func isCut(below stored: CacheKey) -> Bool {
    stored.value.utf8.count == CacheKey.maximumLength
  }

  /// The key below.
  func stored(_ key: CacheKey) throws -> CacheKey {
    try key.validate()
    guard isCut(key) else { return CacheKey(verbatim: prefix + key.value) }
    let head = key.value.cut(cutLength)
    let filling = String(repeating: "~", count: cutLength - head.utf8.count)
    return CacheKey(verbatim: prefix + head + filling + CacheKey(key.value).value)
  }

  /// The value below.
  func stored(_ value: Data, _ key: CacheKey) -> Data { isCut(key) ? NamedValue.combined(key, value) : value }

  func stored(_ operation: StorageOperation) throws -> StorageOperation {
    switch operation {
    case .write(let data, let key): .write(stored(data, key), key: try stored(key))
    case .remove(let key): .remove(key: try stored(key))
    case .removeAll:
      throw StorageError(.unsupported, "A batch over several namespaces cannot empty one: use a transaction.")
    }
  }

  /// The entry below.
  func stored(_ entry: StorageEntry) throws -> StorageEntry {
    StorageEntry(
      key: try stored(entry.key), data: stored(entry.data, entry.key), createdAt: entry.createdAt,
      updatedAt: entry.updatedAt)
  }

  /// The value of a key, of what is stored for it.
  func value(_ stored: Data, of key: CacheKey) throws -> Data {
    isCut(key) ? try NamedValue.separated(stored, in: place).data : stored
  }

  func contains(below stored: CacheKey) -> Bool {
    stored.withUTF8 { stored in
      guard stored.count >= prefixBytes.count else { return false }
      return prefixBytes.withUnsafeBytes {
        UnsafeRawBufferPointer(rebasing: stored[..<$0.count]).compare(with: $0) == 0
      }
    }
  }

  /// The key, nil if only the value has it.
  func key(below stored: CacheKey) -> CacheKey? {
    if Self.isCut(below: stored) { return nil }
    return stored.withUTF8 { CacheKey(utf8: UnsafeRawBufferPointer(rebasing: $0[prefixBytes.count...])) }
  }

  /// The entry, nil if it belongs to another namespace.
  func entry(_ stored: (key: CacheKey, data: Data)) throws -> (key: CacheKey, data: Data)? {
    guard contains(below: stored.key) else { return nil }
    if let key = key(below: stored.key) { return (key, stored.data) }
    return try NamedValue.separated(stored.data, in: place)
  }

  func entry(_ stored: StorageEntry) throws -> StorageEntry? {
    guard let (key, data) = try entry((stored.key, stored.data)) else { return nil }
    var entry = stored
    (entry.key, entry.data) = (key, data)
    return entry
  }

  /// What has changed in the namespace, nil if nothing has.
  func change(_ change: StorageChange) -> StorageChange? {
    guard case .keys(let stored) = change else { return change }
    let own = stored.filter(contains)
    if own.isEmpty { return nil }
    let keys = own.compactMap(key)
    return keys.count == own.count ? .keys(Set(keys)) : .everything
  }

  // MARK: Ranges

  /// A scan, by scans of the engine below.
  ///
  /// Below the order is the same, but for keys that begin with the same some 440 bytes and of which one is cut. Where such keys are, or may
  /// be, a page is made of the whole range.
  struct Scan {
    /// What to scan below: the range, or more if a bound is that long.
    let below: KeyRange
    /// Whether it is the range, but for the order.
    let isExact: Bool
    fileprivate let range: KeyRange
    fileprivate let keys: NamespacedKeys

    /// What the engine below has returned for the limit, if it is the page.
    func page(_ found: [(key: CacheKey, data: Data)]) throws -> [(key: CacheKey, data: Data)]? {
      let longest = keys.prefix.utf8.count + keys.orderedLength
      guard found.allSatisfy({ $0.key.value.utf8.count <= longest }) else { return nil }
      return try found.compactMap(keys.entry)
    }

    /// The page, of what the engine below has returned without a limit.
    func page(ofAll found: [(key: CacheKey, data: Data)], limit: Int?) throws -> [(key: CacheKey, data: Data)]
    {
      try found.compactMap(keys.entry).inside(range, limit: limit)
    }
  }

  func scan(_ range: KeyRange) throws -> Scan {
    try range.validate()
    var below = KeyRange.prefix(prefix + (range.prefix ?? "").cut(orderedLength))
    below.after = range.after.map { CacheKey(verbatim: prefix + $0.value.cut(orderedLength)) }
    func isShort(_ text: String?) -> Bool { (text ?? "").utf8.count <= orderedLength }
    if isShort(range.upTo?.value) { below.upTo = range.upTo.map { CacheKey(verbatim: prefix + $0.value) } }
    let isExact = isShort(range.prefix) && isShort(range.after?.value) && isShort(range.upTo?.value)
    return Scan(below: below, isExact: isExact, range: range, keys: self)
  }
}

extension String {
  /// The longest beginning of whole scalars that has no more bytes than this.
  fileprivate func cut(_ count: Int) -> String {
    guard utf8.count > count else { return self }
    var end = utf8.index(utf8.startIndex, offsetBy: count)
    while utf8[end] & 0xC0 == 0x80 { end = utf8.index(before: end) }
    return String(self[..<end])
  }
}
