import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// The keys in the engine below an inventory. In a key that begins with the key of the inventory, one byte is inserted after that
// beginning. All other keys are the same there, and so is the order of all keys.

private let mark = "+"

/// Converts a key, or a prefix of keys, to its form in the engine below.
private func below(_ text: String) -> String {
  let own = Inventory.key.value
  guard text.utf8.starts(with: own.utf8) else { return text }
  return own + mark + (String(text.utf8.dropFirst(own.utf8.count)) ?? "")
}

extension CacheKey {
  private var isLikeInventory: Bool { value.utf8.starts(with: Inventory.key.value.utf8) }

  var belowInventory: CacheKey { isLikeInventory ? CacheKey(verbatim: below(value)) : self }

  /// Converts a key of the engine below to the key in front of the inventory. Nil for the key of the inventory itself.
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
  /// The limit for a scan of the engine below, which may return the inventory as well.
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
