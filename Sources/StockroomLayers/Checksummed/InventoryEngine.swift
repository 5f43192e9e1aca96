public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Keeps an inventory of the keys in the place: what ``StockroomCore/StorageEngine/checksummedWithInventory()`` returns.
///
/// The inventory is one entry more: the number of keys and a digest of them, which every change brings up to date in the same transaction. It
/// is compared with the keys that are there before the first call, and by ``verify()``. Found, with the code `corrupted`, are entries that went
/// missing, or came, without this layer, while the place was closed; together with ``ChecksummedEngine`` below, the capability
/// `detectsCorruption`. Not found: the whole place as it was at an earlier time, and times and the order of entries that are not right.
///
/// Costs: every write is a transaction, which looks for the key and writes two entries. The first call lists all keys. One key is taken:
/// writing it throws `invalidKey`, and it is absent otherwise.
public struct InventoryEngine<Base: StorageEngine>: StorageLayer {
  /// The engine that keeps the entries and the inventory.
  public let base: Base
  private let isVerified = Flag()

  private final class Flag: Sendable {
    private let value = MutexProtected(false)
    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
  }

  init(base: Base) throws {
    guard base.capabilities.contains(.transactions) else {
      throw StorageError(.unsupported, "An inventory needs transactions, which a \(Base.self) does not have.")
    }
    self.base = base
  }

  /// Those of the engine below, and `detectsCorruption`.
  public var capabilities: EngineCapabilities { base.capabilities.union(.detectsCorruption) }

  /// The engine below, whose keys are those of the inventory.
  private var verified: Base {
    get async throws {
      if !isVerified.isSet {
        try await verifyInventory()
        isVerified.set()
      }
      return base
    }
  }

  private func verifyInventory() async throws {
    try await base.withTransaction { base in
      let found = Inventory(of: try base.allKeys().lazy.filter { $0 != Inventory.key })
      try Inventory(stored: base.read(key: Inventory.key)).verify(found)
    }
  }

  /// Has the engine below verify what it stores, then compares the inventory with the keys that are there.
  @concurrent public func verify() async throws {
    try await base.verify()
    try await verifyInventory()
  }

  // MARK: Writing

  /// Writes the value and the inventory in one transaction.
  public func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }

  /// Writes the values and the inventory in one transaction.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// Removes the entry, and writes the inventory, in one transaction.
  public func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }

  /// Removes the entries, and writes the inventory, in one transaction.
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try await apply(keys.map { .remove(key: $0) })
  }

  /// Removes all entries, and writes the inventory, in one transaction.
  public func removeAllData() async throws { try await apply([.removeAll]) }

  /// Does the operations, and writes the inventory, in one transaction.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await withTransaction { try $0.apply(operations) }
  }

  /// Writes the entries with their times, and the inventory, in one transaction.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    try await withTransaction { transaction in
      for entry in entries { try transaction.writeEntry(entry) }
    }
  }

  /// A transaction of the engine below, which writes the inventory at its end.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await verified.withTransaction { base in
      let transaction = try InventoryTransaction(base: base)
      let result = try body(transaction)
      try transaction.writeInventory()
      return result
    }
  }

  // MARK: Reading

  /// Read by the engine below.
  public func read(key: CacheKey) async throws -> Data? {
    let data = try await verified.read(key: key)
    return key == Inventory.key ? nil : data
  }

  /// Read by the engine below.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await verified.read(keys: keys.filter { $0 != Inventory.key })
  }

  /// Read by the engine below.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await verified.readDataAndKeys(keys: keys.filter { $0 != Inventory.key })
  }

  /// Read by the engine below.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Read by the engine below.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await verified.readAllDataAndKeys().filter { $0.key != Inventory.key }
  }

  /// Asks the engine below.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await verified.keyExists(key) && key != Inventory.key
  }

  /// Asks the engine below.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await verified.keysExist(keys.filter { $0 != Inventory.key })
  }

  /// What the inventory says. O(1).
  public func keyCount() async throws -> Int {
    try await Inventory(stored: verified.read(key: Inventory.key)).count
  }

  /// Listed by the engine below.
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await verified.allKeys().filter { $0 != Inventory.key }
  }

  /// The time of the entry below.
  public func createdAt(key: CacheKey) async throws -> Date? {
    let date = try await verified.createdAt(key: key)
    return key == Inventory.key ? nil : date
  }

  /// The time of the entry below.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    let date = try await verified.updatedAt(key: key)
    return key == Inventory.key ? nil : date
  }

  /// Read by the engine below.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await verified.readAllEntries().filter { $0.key != Inventory.key }
  }

  /// Read by the engine below.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await verified.readEntries(keys: keys.filter { $0 != Inventory.key })
  }

  /// Read by the engine below.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let page = try await verified.scan(range, limit: limit.map(Inventory.oneMore))
    return page.withoutInventory(limit: limit)
  }

  /// The changes of the engine below, without those of the inventory.
  public func changes() async throws -> StorageChanges {
    try await verified.changes().mapping { change in
      guard case .keys(var keys) = change, keys.remove(Inventory.key) != nil else { return change }
      return keys.isEmpty ? nil : .keys(keys)
    }
  }
}

extension StorageEngine {
  /// This engine, with a checksum for each value and an inventory of the keys. See ``ChecksummedEngine`` and ``InventoryEngine``.
  ///
  /// - Throws: `StorageError` with code `unsupported` if the engine has no transactions.
  public func checksummedWithInventory() throws -> InventoryEngine<ChecksummedEngine<Self>> {
    try InventoryEngine(base: checksummed())
  }
}

extension Inventory {
  /// The limit for a scan of the engine below, which may meet the inventory.
  fileprivate static func oneMore(_ limit: Int) -> Int { limit <= 0 || limit == .max ? limit : limit + 1 }
}

extension [(key: CacheKey, data: Data)] {
  fileprivate func withoutInventory(limit: Int?) -> Self {
    Array(filter { $0.key != Inventory.key }.prefix(Swift.max(0, limit ?? .max)))
  }
}

/// A transaction of the engine below, and the inventory as it will be at its end.
private final class InventoryTransaction: StorageTransaction {
  private let base: any StorageTransaction
  /// What the engine below has.
  private var stored: Inventory
  private var inventory: Inventory

  init(base: any StorageTransaction) throws {
    self.base = base
    stored = try Inventory(stored: base.read(key: Inventory.key))
    inventory = stored
  }

  func writeInventory() throws {
    if inventory != stored { try base.write(inventory.stored, key: Inventory.key) }
  }

  func read(key: CacheKey) throws -> Data? {
    let data = try base.read(key: key)
    return key == Inventory.key ? nil : data
  }

  func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys.filter { $0 != Inventory.key }) }

  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) && key != Inventory.key }

  func keyCount() throws -> Int {
    // The transaction refuses to be used once its body has returned.
    _ = try base.keyExists(Inventory.key)
    return inventory.count
  }

  func allKeys() throws -> [CacheKey] { try base.allKeys().filter { $0 != Inventory.key } }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit.map(Inventory.oneMore)).withoutInventory(limit: limit)
  }

  func write(_ data: Data, key: CacheKey) throws { try insert(key) { try base.write(data, key: key) } }

  func writeEntry(_ entry: StorageEntry) throws { try insert(entry.key) { try base.writeEntry(entry) } }

  /// Takes note of a key that is written.
  private func insert(_ key: CacheKey, _ write: () throws -> Void) throws {
    if key == Inventory.key {
      throw StorageError(.invalidKey, "The key \(key) is that of the place's inventory.")
    }
    let isNew = try !base.keyExists(key)
    try write()
    if isNew { inventory.insert(key) }
  }

  func remove(key: CacheKey) throws {
    guard try keyExists(key) else { return }
    try base.remove(key: key)
    inventory.remove(key)
  }

  func removeAll() throws {
    try base.removeAll()
    (stored, inventory) = (Inventory(), Inventory())
  }
}
