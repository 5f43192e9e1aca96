import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Parses entries that arrive in pieces of any length.
struct EntryParser {
  private struct Entry {
    let key: CacheKey
    let createdAt: Timestamp
    let updatedAt: Timestamp
    /// The number of bytes of the value that have not arrived yet.
    var missing: Int
    var data = Data()
  }

  /// Whether values are kept. If not, entries have empty values, and memory is bounded regardless of the
  /// entries.
  private let keepsValues: Bool
  private let maximumValueSize: Int
  /// The header and the key of the next entry, as far as they have arrived.
  private var head: [UInt8] = []
  private var entry: Entry?
  /// The first value that is larger than allowed.
  private(set) var tooLargeValue: (key: CacheKey, size: Int)?
  private(set) var entryCount = 0
  private(set) var contentSize = 0

  init(keepsValues: Bool, maximumValueSize: Int) {
    self.keepsValues = keepsValues
    self.maximumValueSize = maximumValueSize
  }

  /// Whether the last entry is complete.
  var isBetweenEntries: Bool { head.isEmpty && entry == nil }

  /// Calls `body` with each entry that the bytes complete.
  mutating func parse(_ bytes: UnsafeRawBufferPointer, _ body: (StorageEntry) throws -> Void) throws {
    var rest = bytes
    func take(_ wanted: Int) -> UnsafeRawBufferPointer {
      let count = min(max(0, wanted), rest.count)
      defer { rest = UnsafeRawBufferPointer(rebasing: rest[count...]) }
      return UnsafeRawBufferPointer(rebasing: rest[..<count])
    }
    while true {
      if var current = entry.take() {
        let part = take(current.missing)
        if keepsValues { current.data.append(contentsOf: part) }
        current.missing -= part.count
        guard current.missing == 0 else {
          entry = current
          return
        }
        try body(
          StorageEntry(
            key: current.key, data: current.data, createdAt: current.createdAt.date,
            updatedAt: current.updatedAt.date))
      }
      if rest.isEmpty { return }
      // A part of the key may already be here if the entry begins in an earlier block.
      head.append(contentsOf: take(ArchiveFormat.entryHeaderSize - head.count))
      guard head.count >= ArchiveFormat.entryHeaderSize else { return }
      let size = ArchiveFormat.entryHeaderSize + (try keySize())
      head.append(contentsOf: take(size - head.count))
      guard head.count == size else { return }
      entry = try nextEntry()
      head.removeAll(keepingCapacity: true)
    }
  }

  private func keySize() throws -> Int {
    let size = head.withUnsafeBytes { Int($0.number(at: 0, as: UInt16.self)) }
    guard 1...CacheKey.maximumLength ~= size else { throw ArchiveCorruption("a key has \(size) bytes") }
    return size
  }

  private mutating func nextEntry() throws -> Entry {
    try head.withUnsafeBytes { head in
      let key = CacheKey(utf8: UnsafeRawBufferPointer(rebasing: head[ArchiveFormat.entryHeaderSize...]))
      guard let key else { throw ArchiveCorruption("a key is not UTF-8") }
      // No dump writes a marker, and an engine that contained one would be treated as the target of an unfinished copy.
      if UnfinishedCopy.isMarker(key) {
        throw ArchiveCorruption("it has an entry \(key.value.debugDescription)")
      }
      guard let size = Int(exactly: head.number(at: 2, as: UInt64.self)),
        case let (sum, isTooLarge) = contentSize.addingReportingOverflow(size),
        !isTooLarge, sum <= .max - CacheKey.maximumLength
      else { throw ArchiveCorruption("its entries have more bytes than can be counted") }
      if size > maximumValueSize {
        tooLargeValue = tooLargeValue ?? (key, size)
        // If values are not kept, parsing continues: the archive may also be corrupted, which is reported first.
        if keepsValues { throw ArchiveCorruption("a value is larger than it was before") }
      }
      contentSize = sum + key.value.utf8.count
      entryCount += 1
      return Entry(
        key: key, createdAt: Timestamp(nanoseconds: head.number(at: 10)),
        updatedAt: Timestamp(nanoseconds: head.number(at: 18)), missing: size)
    }
  }
}

/// The defect of an archive. ``ArchiveScanner`` converts it to a `StorageError` that names the archive.
struct ArchiveCorruption: Error {
  let reason: String

  init(_ reason: String) { self.reason = reason }
}
