import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below, and the inventory that results from its changes.
final class InventoryTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  /// The description of the engine below, for error messages.
  private let place: String?
  /// The inventory that is stored in the engine below.
  private var stored: Inventory
  private var inventory: Inventory

  /// - Parameter inventory: The inventory that is stored in the engine below.
  init(base: any StorageTransaction, _ inventory: Inventory, place: String?) {
    (self.base, stored, self.inventory, self.place) = (base, inventory, inventory, place)
  }

  func writeInventory() throws {
    if inventory != stored { try base.write(inventory.stored, key: Inventory.key) }
  }

  func read(key: CacheKey) throws -> Data? {
    try base.read(key: key.belowInventory)
  }

  func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys.map(\.belowInventory)) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] { try base.values(of: keys.map(\.belowInventory)) }

  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key.belowInventory) }

  func keyCount() throws -> Int {
    // Only to throw `.closed` if the body has returned (rule T4).
    _ = try base.keyExists(Inventory.key)
    return inventory.count
  }

  func allKeys() throws -> [CacheKey] { try base.allKeys().compactMap(\.aboveInventory) }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range.belowInventory, limit: limit.map(Inventory.oneMore)).aboveInventory(limit: limit)
  }

  func write(_ data: Data, key: CacheKey) throws {
    try insert(key) { try base.write(data, key: $0) }
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try insert(entry.key) { key in
      var entry = entry
      entry.key = key
      try base.writeEntry(entry)
    }
  }

  /// Writes under the key of the engine below, and adds that key to the inventory if it is new.
  private func insert(_ key: CacheKey, _ write: (CacheKey) throws -> Void) throws {
    let below = key.belowInventory
    let isNew = try !base.keyExists(below)
    try write(below)
    if isNew { try naming(place) { try inventory.insert(below) } }
  }

  func remove(key: CacheKey) throws {
    let below = key.belowInventory
    guard try base.keyExists(below) else { return }
    try base.remove(key: below)
    try naming(place) { try inventory.remove(below) }
  }

  func removeAll() throws {
    try base.removeAll()
    (stored, inventory) = (Inventory(), Inventory())
  }
}
