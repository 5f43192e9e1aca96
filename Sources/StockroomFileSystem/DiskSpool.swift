import StockroomCore

/// A snapshot of the entries of a place, in an unnamed temporary file. Only the keys are in memory.
final class DiskSpool: Sendable {
  /// The position of a value in the file.
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

  /// Writes entries that differ from those in the file. If others write in the meantime, the file contains
  /// some of their changes.
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
