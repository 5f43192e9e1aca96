import StockroomCore

/// A snapshot of the entries of a place, in a temporary file without a name. In memory there are the keys.
final class DiskSpool: Sendable {
  /// Where a value is in the file.
  private struct Record {
    let header: EntryHeader
    let offset: Int
    let size: Int
  }

  private struct State {
    var records: [CacheKey: Record] = [:]
    var end = 0
  }

  private let passes: EntryPasses
  private let file: FileDescriptor
  private let state = MutexProtected(State())

  init(of source: DiskConnection) throws {
    passes = EntryPasses(of: source)
    file = try .makeNamelessFile()
  }

  /// Writes what is not in the file as it is in the place. If others write meanwhile, some of what they write is in it.
  func bringUpToDate(_ flag: CancellationFlag) throws {
    try state.withLock { state in
      try passes.run(flag) { key, data, header in
        try data.withUnsafeBytes { try file.write($0, at: state.end) }
        state.records[key] = Record(header: header, offset: state.end, size: data.count)
        state.end += data.count
      } remove: { key in
        state.records[key] = nil
      }
    }
  }

  /// Calls `body` with each entry, in the order in which the keys were first written.
  func forEachEntry(_ flag: CancellationFlag, _ body: (StorageEntry) throws -> Void) throws {
    let records = state.withLock(\.records)
    for key in records.map({ (sequence: $1.header.sequence, key: $0) }).keysByCreation() {
      try flag.check()
      guard let record = records[key] else { continue }
      let data = try file.readData(size: record.size, at: record.offset)
      guard data.count == record.size else {
        throw StorageError(.io, "The temporary file \(file.path) has become shorter.")
      }
      try body(StorageEntry(key: key, data: data, header: record.header))
    }
  }
}
