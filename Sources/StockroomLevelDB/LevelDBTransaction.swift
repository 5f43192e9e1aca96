import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Turns operations into one batch of LevelDB's, and keeps the metadata while it does.
///
/// There is one transaction at a time, on the engine's own thread.
struct LevelDBTransaction {
  let handle: LevelDBHandle
  private let now = Timestamp.now()
  private let batch = LevelDBBatch()
  /// What the database holds once the batch is written.
  private var metadata: LevelDBMetadata
  private var hasChanges = false
  /// If everything has been removed: the key of the first entry of every few megabytes.
  private(set) var removedKeys: [[UInt8]] = []
  private var record: [UInt8] = []

  init(on handle: LevelDBHandle, metadata: LevelDBMetadata) {
    self.handle = handle
    self.metadata = metadata
  }

  /// Looks for what the operations find, and puts into LevelDB's batch what they come to.
  ///
  /// Each operation has a sequence of its own, so that those on keys which are there already leave gaps.
  mutating func add(_ operations: SortedBatch) throws {
    if operations.removesAll { try removeAll() }
    // Where nothing is, nothing need be looked for.
    let isEmpty = metadata.count == 0
    try operations.forEachKey { key, positions in
      try perform(operations, at: positions, on: key, existing: isEmpty ? nil : handle.header(of: key))
    }
    if hasChanges { metadata.nextSequence += UInt64(operations.operations.count) }
  }

  /// Writes a key that is absent with what another database has stored under it, times and place in the order included.
  mutating func add(_ key: UnsafeRawBufferPointer, stored: UnsafeRawBufferPointer) throws {
    let sequence = try LevelDBEncoding.header(stored, path: handle.path).sequence
    // Beyond what opening accepts.
    guard sequence < LevelDBMetadata.greatest else {
      throw StorageError(.corrupted, "An entry in the LevelDB database has the sequence \(sequence).")
    }
    batch.put(key, stored)
    metadata.count += 1
    metadata.nextSequence = max(metadata.nextSequence, sequence + 1)
    hasChanges = true
  }

  /// Puts nothing into the batch but the metadata.
  mutating func touchMetadata() { hasChanges = true }

  /// Writes the batch, if there is anything in it. Returns the metadata from now on.
  mutating func commit() throws -> LevelDBMetadata {
    guard hasChanges else { return metadata }
    metadata.generation += 1
    batch.put(metadata)
    try handle.write(batch)
    return metadata
  }

  /// Does to an entry what all of the operations on its key come to, of which only the last one can be seen.
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

  /// Removes key by key, since LevelDB knows no other way: costs time proportional to the number of entries.
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

  /// How much is compacted at a time when everything has been removed: a write, and closing, wait for no
  /// more of it than that.
  private static let rangeSize = 8 << 20
}
