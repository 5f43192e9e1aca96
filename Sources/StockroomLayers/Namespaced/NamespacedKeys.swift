import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Converts the entries of a namespace to those of the engine below, where a key consists of the name, a slash and the key.
///
/// A key that is too long for that is cut, and its digest is appended; the value then contains the whole key. The key of such an
/// entry in the engine below has exactly 511 bytes. No other entry of the namespace has a key of that length.
final class NamespacedKeys: Sendable {
  /// The name and the slash.
  let prefix: String
  private let prefixBytes: [UInt8]
  /// The description of the engine below, for error messages.
  let place: String?
  /// The maximum length in bytes of a key that is not cut.
  private let longestWhole: Int
  /// The number of bytes to which a longer key is cut, including padding.
  private let cutLength: Int
  /// Keys that differ within this number of bytes have the same order in the namespace and in the engine below.
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
    // A key is cut between Unicode scalars, which have up to four bytes.
    orderedLength = cutLength - 3
  }

  // MARK: Entries

  func isCut(_ key: CacheKey) -> Bool { key.value.utf8.count > longestWhole }

  private static func isCut(below stored: CacheKey) -> Bool {
    stored.value.utf8.count == CacheKey.maximumLength
  }

  /// The key in the engine below.
  func stored(_ key: CacheKey) throws -> CacheKey {
    try key.validate()
    guard isCut(key) else { return CacheKey(verbatim: prefix + key.value) }
    let head = key.value.cut(cutLength)
    let filling = String(repeating: "~", count: cutLength - head.utf8.count)
    return CacheKey(verbatim: prefix + head + filling + CacheKey(key.value).value)
  }

  /// The value in the engine below.
  func stored(_ value: Data, _ key: CacheKey) -> Data { isCut(key) ? NamedValue.combined(key, value) : value }

  func stored(_ operation: StorageOperation) throws -> StorageOperation {
    switch operation {
    case .write(let data, let key): .write(stored(data, key), key: try stored(key))
    case .remove(let key): .remove(key: try stored(key))
    case .removeAll:
      throw StorageError(
        .unsupported, "A batch cannot remove all entries of one of several namespaces: use a transaction.")
    }
  }

  /// The entry in the engine below.
  func stored(_ entry: StorageEntry) throws -> StorageEntry {
    StorageEntry(
      key: try stored(entry.key), data: stored(entry.data, entry.key), createdAt: entry.createdAt,
      updatedAt: entry.updatedAt)
  }

  /// The value of a key, from the stored value.
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

  /// The key of an entry, from its key in the engine below. Nil if the key was cut, so that only the value contains it.
  func key(below stored: CacheKey) -> CacheKey? {
    if Self.isCut(below: stored) { return nil }
    return stored.withUTF8 { CacheKey(utf8: UnsafeRawBufferPointer(rebasing: $0[prefixBytes.count...])) }
  }

  /// The entry, from that in the engine below. Nil if it belongs to another namespace.
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

  /// The change in this namespace. Nil if nothing has changed in it.
  func change(_ change: StorageChange) -> StorageChange? {
    guard case .keys(let stored) = change else { return change }
    let own = stored.filter(contains)
    if own.isEmpty { return nil }
    let keys = own.compactMap(key)
    return keys.count == own.count ? .keys(Set(keys)) : .everything
  }

  // MARK: Ranges

  /// A scan of the namespace, made of scans of the engine below.
  ///
  /// The order of keys in the engine below is the same, except among keys that have the first 440 or so bytes in common and of
  /// which one is cut. If a scan returns such keys, or its bounds are that long, the page is made from the whole range.
  struct Scan {
    /// The range to scan in the engine below. It contains more than the range of the scan if a bound is that long.
    let below: KeyRange
    /// Whether ``below`` contains exactly the keys of the range, if perhaps in another order.
    let isExact: Bool
    fileprivate let range: KeyRange
    fileprivate let keys: NamespacedKeys

    /// The page, from what the engine below has returned with the same limit. Nil if keys in it are so long that it may be another
    /// page.
    func page(_ found: [(key: CacheKey, data: Data)]) throws -> [(key: CacheKey, data: Data)]? {
      let longest = keys.prefix.utf8.count + keys.orderedLength
      guard found.allSatisfy({ $0.key.value.utf8.count <= longest }) else { return nil }
      return try found.compactMap(keys.entry)
    }

    /// The page, from what the engine below has returned without a limit.
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
  /// The longest prefix of whole Unicode scalars that has at most `count` bytes.
  fileprivate func cut(_ count: Int) -> String {
    guard utf8.count > count else { return self }
    var end = utf8.index(utf8.startIndex, offsetBy: count)
    while utf8[end] & 0xC0 == 0x80 { end = utf8.index(before: end) }
    return String(self[..<end])
  }
}
