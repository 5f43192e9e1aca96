import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Keys in the engine below an inventory: those that begin with that of the inventory have a byte more, behind that beginning. All others
// are the same there, and so is the order of all.

private let mark = "+"

/// The text below, of one that may be the beginning of keys.
private func below(_ text: String) -> String {
  let own = Inventory.key.value
  guard text.utf8.starts(with: own.utf8) else { return text }
  return own + mark + (String(text.utf8.dropFirst(own.utf8.count)) ?? "")
}

extension CacheKey {
  private var isLikeInventory: Bool { value.utf8.starts(with: Inventory.key.value.utf8) }

  var belowInventory: CacheKey { isLikeInventory ? CacheKey(verbatim: below(value)) : self }

  /// The key, of one of the engine below; nil for that of the inventory.
  var aboveInventory: CacheKey? {
    guard isLikeInventory else { return self }
    let own = Inventory.key.value
    let rest = String(value.utf8.dropFirst(own.utf8.count + mark.utf8.count)) ?? ""
    return self == Inventory.key ? nil : CacheKey(verbatim: own + rest)
  }
}

extension KeyRange {
  var belowInventory: KeyRange {
    var range = KeyRange(after: after?.belowInventory, upTo: upTo?.belowInventory)
    range.prefix = prefix.map(below)
    return range
  }
}

extension Inventory {
  /// The limit for a scan of the engine below, which may meet the inventory.
  static func oneMore(_ limit: Int) -> Int { limit <= 0 || limit == .max ? limit : limit + 1 }
}

extension [(key: CacheKey, data: Data)] {
  var aboveInventory: Self { compactMap { entry in entry.key.aboveInventory.map { ($0, entry.data) } } }

  func aboveInventory(limit: Int?) -> Self { Array(aboveInventory.prefix(Swift.max(0, limit ?? .max))) }
}

extension [StorageEntry] {
  var aboveInventory: Self {
    compactMap { below in
      guard let key = below.key.aboveInventory else { return nil }
      var entry = below
      entry.key = key
      return entry
    }
  }
}
