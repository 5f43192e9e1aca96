import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Turns operations into one batch of LevelDB's, and keeps the ledger while it does.
///
/// There is one transaction at a time, on the engine's own thread.
struct LevelDBTransaction {
  private let handle: LevelDBHandle
  private let now = Timestamp.now()
  private let batch = LevelDBBatch()
  /// What the database holds once the batch is written.
  private(set) var ledger: Ledger
  /// The keys that the batch has touched; nil means absent.
  private var touched: [CacheKey: EntryHeader?] = [:]
  /// Nothing of what is in the database will be left, so it need not be asked.
  private var isCleared: Bool
  private var hasChanges = false
  private var record: [UInt8] = []

  init(on handle: LevelDBHandle, ledger: Ledger) {
    self.handle = handle
    self.ledger = ledger
    isCleared = ledger.count == 0
  }

  /// Makes room for that many operations.
  mutating func expect(_ count: Int) { touched.reserveCapacity(count) }

  mutating func add(_ operation: StorageOperation) throws {
    switch operation {
    case .write(let data, let key): try write(data, key: key)
    case .remove(let key): try remove(key)
    case .removeAll: try removeAll()
    }
  }

  /// Writes the batch, if there is anything in it. Returns the ledger that holds from now on.
  mutating func commit() throws -> Ledger {
    guard hasChanges else { return ledger }
    ledger.generation += 1
    Ledger.key.withUnsafeBytes { key in ledger.encoded.withUnsafeBytes { batch.put(key, $0) } }
    try handle.write(batch)
    return ledger
  }

  /// Costs a look for the key, and copies the value three times: into the record, the batch and the log.
  private mutating func write(_ data: Data, key: CacheKey) throws {
    var header: EntryHeader
    if let existing = try self.header(of: key) {
      header = existing
      header.overwrite(at: now)
    } else {
      header = EntryHeader(createdAt: now, sequence: ledger.nextSequence)
      ledger.nextSequence += 1
      ledger.count += 1
    }
    let size = EntryHeader.encodedSize + data.count
    if record.count < size { record = [UInt8](repeating: 0, count: size) }
    record.withUnsafeMutableBytes { record in
      header.encode(into: record)
      let value = UnsafeMutableRawBufferPointer(rebasing: record[EntryHeader.encodedSize..<size])
      data.withUnsafeBytes { value.copyMemory(from: $0) }
      key.withUTF8 { batch.put($0, UnsafeRawBufferPointer(rebasing: record[..<size])) }
    }
    touched[key] = .some(header)
    hasChanges = true
  }

  private mutating func remove(_ key: CacheKey) throws {
    guard try header(of: key) != nil else { return }
    key.withUTF8 { batch.delete($0) }
    touched[key] = .some(nil)
    ledger.count -= 1
    hasChanges = true
  }

  /// Removes key by key, since LevelDB knows no other way: costs time proportional to the number of entries.
  private mutating func removeAll() throws {
    for (key, header) in touched where header != nil {
      key.withUTF8 { batch.delete($0) }
    }
    if !isCleared {
      try handle.forEachEntry { key, _ in
        batch.delete(key)
        return true
      }
    }
    hasChanges = hasChanges || ledger.count > 0
    touched = [:]
    isCleared = true
    ledger.count = 0
  }

  /// The header of an entry as the operations before have left it, or nil if it is absent.
  private func header(of key: CacheKey) throws -> EntryHeader? {
    if let known = touched[key] { return known }
    if isCleared { return nil }
    return try handle.header(of: key)
  }
}
