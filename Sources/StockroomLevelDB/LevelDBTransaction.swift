import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Converts operations to one batch of LevelDB, and updates the metadata.
///
/// There is one transaction at a time, on the engine's own thread.
struct LevelDBTransaction {
  let handle: LevelDBHandle
  private let now = Timestamp.now()
  private let batch = LevelDBBatch()
  /// The metadata of the database once the batch is written.
  private var metadata: LevelDBMetadata
  private var hasChanges = false
  /// If all entries have been removed: the key of the first entry of every few megabytes.
  private(set) var removedKeys: [[UInt8]] = []
  private var record: [UInt8] = []

  init(on handle: LevelDBHandle, metadata: LevelDBMetadata) {
    self.handle = handle
    self.metadata = metadata
  }

  /// Reads the entries that the operations concern, and adds the resulting changes to LevelDB's batch.
  ///
  /// Each operation takes a sequence number, so those on existing keys leave gaps.
  mutating func add(_ operations: SortedBatch) throws {
    if operations.removesAll { try removeAll() }
    // If the database is empty, no key needs to be searched for.
    let isEmpty = metadata.count == 0
    try operations.forEachKey { key, positions in
      try perform(operations, at: positions, on: key, existing: isEmpty ? nil : handle.header(of: key))
    }
    if hasChanges { metadata.nextSequence += UInt64(operations.operations.count) }
  }

  /// Writes an absent key with its record from another database, including its timestamps and position in the
  /// order.
  mutating func add(_ key: UnsafeRawBufferPointer, stored: UnsafeRawBufferPointer) throws {
    let sequence = try LevelDBEncoding.header(stored, path: handle.path).sequence
    // Opening the copy would throw `.corrupted` for greater numbers.
    guard sequence < LevelDBMetadata.greatest else {
      throw StorageError(.corrupted, "An entry in the LevelDB database has the sequence \(sequence).")
    }
    batch.put(key, stored)
    metadata.count += 1
    metadata.nextSequence = max(metadata.nextSequence, sequence + 1)
    hasChanges = true
  }

  /// Makes the batch contain the metadata even if it has no other changes.
  mutating func touchMetadata() { hasChanges = true }

  /// Writes the batch, unless it is empty. Returns the metadata that are in effect then.
  mutating func commit() throws -> LevelDBMetadata {
    guard hasChanges else { return metadata }
    metadata.generation += 1
    batch.put(metadata)
    try handle.write(batch)
    return metadata
  }

  /// Applies all operations on a key to its entry. Only the last one is visible in the result.
  private mutating func perform(
    _ operations: SortedBatch, at positions: ArraySlice<Int>, on key: UnsafeRawBufferPointer,
    existing: EntryHeader?
  ) throws {
    var header = existing
    var value: Data?
    for position in positions {
      if case .write(let data, _) = operations.operations[position] {
        header?.overwrite(at: now)
        header = header ?? EntryHeader(createdAt: now, sequence: metadata.nextSequence + UInt64(position))
        header?.replaceTimes(by: operations.times(at: position))
        value = data
      } else {
        header = nil
      }
    }
    if let header, let value {
      put(header, value, key: key)
      if existing == nil { metadata.count += 1 }
    } else if existing != nil {
      guard metadata.count > 0 else {
        throw StorageError(
          .corrupted, "The LevelDB database in \(handle.path) has more entries than its metadata counts.")
      }
      batch.delete(key)
      metadata.count -= 1
    } else {
      return
    }
    hasChanges = true
  }

  /// Copies the value three times: into the record, the batch and the log.
  private mutating func put(_ header: EntryHeader, _ value: Data, key: UnsafeRawBufferPointer) {
    let size = EntryHeader.encodedSize + value.count
    if record.count < size { record = [UInt8](repeating: 0, count: size) }
    record.withUnsafeMutableBytes { record in
      header.encode(into: record)
      let room = UnsafeMutableRawBufferPointer(rebasing: record[EntryHeader.encodedSize..<size])
      value.withUnsafeBytes { room.copyMemory(from: $0) }
      batch.put(key, UnsafeRawBufferPointer(rebasing: record[..<size]))
    }
  }

  /// Removes key by key, since LevelDB has no other way: takes time proportional to the number of entries.
  private mutating func removeAll() throws {
    guard metadata.count > 0 else { return }
    var size = Int.max / 2
    try handle.forEachEntry { key, stored in
      batch.delete(key)
      size += key.count + stored.count
      if size > Self.rangeSize {
        removedKeys.append(Array(key))
        size = 0
      }
      return true
    }
    hasChanges = true
    metadata.count = 0
  }

  /// The number of bytes that are compacted at a time after all entries have been removed. A write, and closing, wait
  /// for the compaction of at most that many.
  private static let rangeSize = 8 << 20
}
