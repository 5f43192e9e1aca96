import StockroomCore

/// The logs of a database under second names, while LevelDB opens it.
///
/// LevelDB 1.23 treats a read that returns fewer bytes than requested, which a system may do anywhere in a
/// file, as the end of the log, continues without the rest, and removes the log. So the engine keeps the logs
/// until it has verified that the database contains their last batch, and otherwise writes the missing ones.
struct LevelDBKeptLogs {
  private static let prefix = "STOCKROOM.kept-"

  private struct Log {
    let name: String
    /// The numbers of its first and its last batch.
    let batches: ClosedRange<UInt64>
  }

  private let files: LevelDBFiles
  /// In the order in which the logs were written.
  private let names: [String]

  /// Gives each log a second name. Second names that an interrupted opening has left are kept.
  ///
  /// - Parameter first: The oldest relevant log, from the manifest.
  init(in files: LevelDBFiles, since first: UInt64) throws {
    for name in try LevelDBFileList(in: files).logs {
      guard let number = LevelDBFileList.number(ofLog: name), number >= first,
        try files.size(of: name) ?? 0 > 0
      else { continue }
      try files.keep(name, as: Self.prefix + LevelDBFileList.padded(number))
    }
    self.files = files
    names = try files.names().filter(Self.isName).sorted(by: LevelDBFileList.isBefore)
  }

  /// Whether this is a second name, and not that of an unfinished copy.
  private static func isName(_ name: String) -> Bool {
    name.hasPrefix(prefix) && LevelDBFileList.isNumber(name.dropFirst(prefix.count))
  }

  /// Writes the batches that LevelDB has not found, as one synced batch: after a crash, the database has either all of
  /// them or none. Costs reading the logs.
  ///
  /// - Throws: `StorageError` with code `corrupted` if batches before them are missing.
  func restore(to handle: LevelDBHandle) throws {
    let present = try handle.metadata()?.generation ?? 0
    let logs = try newestLogs()
    guard let first = logs.first?.batches.lowerBound, let last = logs.last?.batches.upperBound,
      last > present || last == present && logs.count > 1
    else { return }
    guard first <= present + 1 else {
      throw StorageError(.corrupted, "The LevelDB database in \(files.path) has lost batches.")
    }
    let missing = LevelDBBatch()
    var metadata: LevelDBMetadata?
    for log in logs {
      try forEachBatch(in: log.name) { found, content in
        // If there are several logs, it is unknown which batches LevelDB has not found in the earlier ones, so all are
        // written again: in the same order, they have the same result as the first time.
        if logs.count == 1, found?.generation ?? 0 <= present { return }
        metadata = found
        guard missing.add(logged: content) else {
          throw StorageError(.corrupted, "A batch of the LevelDB database in \(files.path) is corrupted.")
        }
      }
    }
    // The metadata come last, as in every batch of the engine: the last logged batch may be another program's.
    if let metadata { missing.put(metadata) }
    try handle.write(missing, syncing: true)
  }

  /// Removes the second names.
  func remove() throws { for name in names { try files.directory.removeFile(name) } }

  /// The newest logs, of which each continues the numbers of the one before. Earlier logs are from an interrupted
  /// opening, and their contents are in the database.
  private func newestLogs() throws -> [Log] {
    var newest: [Log] = []
    for name in names.reversed() {
      var numbers: ClosedRange<UInt64>?
      try forEachBatch(in: name, keeping: LevelDBLog.metadataSize) { metadata, _ in
        if let generation = metadata?.generation {
          numbers = min(numbers?.lowerBound ?? generation, generation)...generation
        }
      }
      guard let numbers else { continue }
      if let next = newest.first, numbers.upperBound + 1 != next.batches.lowerBound { break }
      newest.insert(Log(name: name, batches: numbers), at: 0)
    }
    return newest
  }

  /// Calls `body` with each batch and its metadata. Batches of other programs get the metadata of the one
  /// before.
  private func forEachBatch(
    in name: String, keeping count: Int = .max,
    _ body: (_ metadata: LevelDBMetadata?, _ content: [UInt8]) throws -> Void
  ) throws {
    let log = try files.read(name).withUnsafeBytes {
      LevelDBLog($0, keeping: count, searchingBehindCorruption: .nothing)
    }
    var metadata: LevelDBMetadata?
    for record in log.records {
      metadata = try LevelDBLog.metadata(in: record.content, path: "\(files.path)/\(name)") ?? metadata
      try body(metadata, record.content)
    }
  }
}

extension LevelDBFiles {
  /// Gives a file a second name, replacing an existing one. If the file system does not support second names,
  /// makes a copy.
  fileprivate func keep(_ name: String, as second: String) throws {
    try directory.removeFile(second)
    if try !directory.link(name, to: second) { try replace(second, with: read(name)) }
  }
}

extension LevelDBBatch {
  /// Adds the operations of a batch from a log. Returns false if it cannot be decoded.
  ///
  /// The format: <https://github.com/google/leveldb/blob/1.23/db/write_batch.cc>
  fileprivate func add(logged content: [UInt8]) -> Bool {
    guard content.count >= LevelDBLog.batchHeadSize else { return false }
    var reader = LevelDBReader(content[LevelDBLog.batchHeadSize...])
    while !reader.isAtEnd {
      guard let kind = reader.number(), let key = reader.string() else { return false }
      switch kind {
      case 0: key.withUnsafeBytes { delete($0) }
      case 1:
        guard let value = reader.string() else { return false }
        key.withUnsafeBytes { key in value.withUnsafeBytes { put(key, $0) } }
      default: return false
      }
    }
    return true
  }
}
