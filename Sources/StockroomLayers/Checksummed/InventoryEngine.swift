public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores an inventory of the keys in the place, to detect missing and added entries.
/// ``StockroomCore/StorageEngine/checksummedWithInventory()`` returns it.
///
/// The inventory is an additional entry with the number of keys and a digest of them. A write that adds or removes keys updates it
/// in the same transaction. The layer compares it with the stored keys before the first call, and in ``verify()``. Entries that
/// were removed or added without this layer, while the place was closed, are reported as `corrupted`; together with
/// ``ChecksummedEngine`` below, the layer has the capability `detectsCorruption`. Replacing the whole place by an earlier state of
/// it is not detected, nor are wrong timestamps or a wrong order of entries.
///
/// Costs: every write is a transaction, which reads the inventory, checks whether each key exists, and writes the inventory as well
/// if it has changed. The first call lists all keys; calls that arrive in the meantime wait for that, and do not list them again. A
/// key that begins with the key of the inventory, 52 bytes that are unlikely in any other key, takes one more byte in the engine
/// below: if it has 511 bytes, it is too long, and reads, scans and writes throw `invalidKey`.
///
/// It cannot be in front of an ``ExpiringEngine``, whose entries expire without an update of the inventory: put `expiring` in front
/// of the inventory.
public struct InventoryEngine<Base: StorageEngine>: StorageLayer {
  /// The engine that keeps the entries and the inventory.
  public let base: Base
  private let isVerified = Flag()
  private let verification = SingleFlight<Void>()

  private final class Flag: Sendable {
    private let value = MutexProtected(false)
    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
  }

  init(base: Base) throws {
    guard base.capabilities.contains(.transactions) else {
      throw StorageError(.unsupported, "An inventory needs transactions, which a \(Base.self) does not have.")
    }
    guard !expires(base) else {
      throw StorageError(
        .unsupported,
        "An inventory cannot be in front of a layer whose entries expire, since they would be reported as missing: "
          + "use expiring(after:clock:) in front of the inventory.")
    }
    self.base = base
  }

  /// The capabilities of ``base``, and `detectsCorruption`.
  public var capabilities: EngineCapabilities { base.capabilities.union(.detectsCorruption) }

  /// The engine below, after its keys have been compared with the inventory once.
  private var verified: Base {
    get async throws {
      if !isVerified.isSet {
        try await verification.value {
          // The verification may have ended between the check above and joining it.
          if isVerified.isSet { return }
          try await verifyInventory()
          isVerified.set()
        }
      }
      return base
    }
  }

  private func inventory(stored: Data?) throws -> Inventory {
    try naming(place) { try Inventory(stored: stored) }
  }

  @concurrent private func verifyInventory() async throws {
    do {
      let keys = try await base.allKeys()
      let stored = try await base.read(key: Inventory.key)
      return try verify(try await inventory(of: keys), stored: stored)
    } catch let error as StorageError where error.code == .corrupted {
      // Other callers may have changed the place between the two reads. So both are repeated in a transaction, for which some
      // engines need permission to write.
      try await base.withTransaction { base in
        let found = try Inventory(of: base.allKeys().lazy.filter { $0 != Inventory.key })
        try verify(found, stored: base.read(key: Inventory.key))
      }
    }
  }

  private func verify(_ found: Inventory, stored: Data?) throws {
    let inventory = try inventory(stored: stored)
    try naming(place) { try inventory.verify(found) }
  }

  /// The inventory of these keys. Each key is hashed, so this yields to other tasks (rule C5).
  private func inventory(of keys: [CacheKey]) async throws -> Inventory {
    var timer = YieldTimer()
    var inventory = Inventory()
    for (index, key) in keys.enumerated() where key != Inventory.key {
      if index.isMultiple(of: 16) { try await timer.yieldIfDue() }
      try inventory.insert(key)
    }
    return inventory
  }

  /// Verifies ``base``, then compares the inventory with the stored keys.
  @concurrent public func verify() async throws {
    try await base.verify()
    try await verifyInventory()
  }

  // MARK: Writing

  /// Writes the value and updates the inventory, in one transaction.
  public func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }

  /// Writes the values and updates the inventory, in one transaction.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// Removes the entry and updates the inventory, in one transaction.
  public func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }

  /// Removes the entries and updates the inventory, in one transaction.
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try await apply(keys.map { .remove(key: $0) })
  }

  /// Removes all entries including the inventory, in one transaction.
  public func removeAllData() async throws { try await apply([.removeAll]) }

  /// Performs the operations and updates the inventory, in one transaction.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await withTransaction { try $0.apply(operations) }
  }

  /// Writes the entries with their timestamps and updates the inventory, in one transaction.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    try await withTransaction { transaction in
      for entry in entries { try transaction.writeEntry(entry) }
    }
  }

  /// Runs a transaction of the engine below that updates the inventory after the body has returned.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await verified.withTransaction { base in
      let inventory = try inventory(stored: base.read(key: Inventory.key))
      let transaction = InventoryTransaction(base: base, inventory, place: place)
      let result = try body(transaction)
      try transaction.writeInventory()
      return result
    }
  }

  // MARK: Reading

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  public func read(key: CacheKey) async throws -> Data? {
    try await verified.read(key: key.belowInventory)
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await verified.read(keys: keys.map(\.belowInventory))
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await verified.readDataAndKeys(keys: keys.map(\.belowInventory)).aboveInventory
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await verified.readAllDataAndKeys().aboveInventory
  }

  /// Checks in the engine below. Costs and throws as the engine below; the first call also lists all keys.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await verified.keyExists(key.belowInventory)
  }

  /// Checks in the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await verified.keysExist(keys.map(\.belowInventory)).compactMap(\.aboveInventory)
  }

  /// The number of keys in the inventory. O(1), except for the first call, which lists all keys.
  public func keyCount() async throws -> Int {
    try await inventory(stored: verified.read(key: Inventory.key)).count
  }

  /// Lists the keys of the engine below. O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await verified.allKeys().compactMap(\.aboveInventory)
  }

  /// The timestamp of the entry in the engine below.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await verified.createdAt(key: key.belowInventory)
  }

  /// The timestamp of the entry in the engine below.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await verified.updatedAt(key: key.belowInventory)
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await verified.readAllEntries().aboveInventory
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await verified.readEntries(keys: keys.map(\.belowInventory)).aboveInventory
  }

  /// Reads from the engine below. Costs and throws as the engine below; the first call also lists all keys.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await verified.scan(range.belowInventory, limit: limit.map(Inventory.oneMore)).aboveInventory(
      limit: limit)
  }

  /// The change feed of the engine below, without changes of the inventory.
  public func changes() async throws -> StorageChanges {
    try await verified.changes().mapping { change in
      guard case .keys(let below) = change else { return change }
      let keys = Set(below.compactMap(\.aboveInventory))
      return keys.isEmpty ? nil : .keys(keys)
    }
  }
}

extension StorageEngine {
  /// This engine, with a checksum for each value and an inventory of the keys. See ``ChecksummedEngine`` and ``InventoryEngine``.
  ///
  /// - Throws: `StorageError` with code `unsupported` if the engine has no transactions, or if its entries expire
  ///   (`expiring(after:clock:)`), even if there are other layers in between.
  public func checksummedWithInventory() throws -> InventoryEngine<ChecksummedEngine<Self>> {
    try InventoryEngine(base: checksummed())
  }
}
