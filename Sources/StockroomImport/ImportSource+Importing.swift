import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ImportSource {
  /// Copies all entries into an engine, in the order of their creation and with their times, as far as the engine can store times of
  /// others.
  ///
  /// The target must be empty, unless `merging`: then an entry whose key the target has is left out, and never replaced. Nothing is
  /// written before the source has been found sound and all keys are known, for which values are read one more time where they have to be
  /// looked at. Entries are written in batches of about 8 MiB, so that memory does not grow
  /// with the size of the source, except for about 100 bytes for each entry. At the end everything that was written is read back, and
  /// compared by length and checksum.
  ///
  /// An import that throws, or is cancelled, after it has begun to write leaves whole batches in the target: repeat it with
  /// `merging`, and it goes on where it was. Nothing else should write to the target meanwhile.
  ///
  /// - Parameters:
  ///   - engine: The target.
  ///   - keys: What the keys become. By default what a `Store` expects.
  ///   - merging: Whether the target may have entries.
  ///   - progress: Called after each batch.
  /// - Returns: What was imported and what was left out.
  /// - Throws: `StorageError` with code ``StockroomCore/StorageError/Code/targetNotEmpty``; as ``open()``; `unsupported` if two entries
  ///   would have one key, with nothing written; `corrupted` if what is read back differs; what the engine throws; `CancellationError`.
  @concurrent
  @discardableResult
  public func `import`(
    into engine: any StorageEngine, keys: ImportKeys = .identifiers, merging: Bool = false,
    progress: @Sendable (ImportProgress) -> Void = { _ in }
  ) async throws -> ImportReport {
    if !merging, case let count = try await engine.keyCount(), count > 0 {
      throw StorageError(
        .targetNotEmpty,
        "\(self) is not imported, since the target has \(count) entries. Merge to add to them.")
    }
    let content = try await open()
    var importer = Importer(source: description, engine: engine, keys: keys, isMerging: merging)
    importer.report.omissions = content.omissions
    var timer = YieldTimer()
    for index in 0..<content.count {
      try await timer.yieldIfDue()
      try importer.addKey(of: index, in: content)
    }
    for index in 0..<content.count {
      try await timer.yieldIfDue()
      try importer.add(content.entry(at: index), at: index)
      if importer.isBatchFull || index == content.count - 1 {
        try await importer.writeBatch()
        progress(
          ImportProgress(completed: index + 1, total: content.count, bytes: importer.report.bytes))
      }
    }
    try await importer.verify()
    return importer.report
  }
}

/// Writes entries to an engine in batches, and reads them back.
private struct Importer {
  private static let bytesInBatch = 8 << 20
  private static let entriesInBatch = 1_000

  /// What was written under a key.
  private struct Written {
    let key: CacheKey
    let length: Int
    let checksum: UInt32

    init(_ key: CacheKey, _ data: Data) {
      self.key = key
      length = data.count
      checksum = data.withUnsafeBytes { CRC32C.checksum($0) }
    }
  }

  let source: String
  let engine: any StorageEngine
  let keys: ImportKeys
  let isMerging: Bool
  var report = ImportReport()
  private var batch: [StorageEntry] = []
  private var bytesOfBatch = 0
  /// Those of all entries, by their index.
  private var allKeys: [CacheKey] = []
  private var knownKeys: Set<CacheKey> = []
  private var unresolved: Set<CacheKey> = []
  private var written: [Written] = []

  init(source: String, engine: any StorageEngine, keys: ImportKeys, isMerging: Bool) {
    self.source = source
    self.engine = engine
    self.keys = keys
    self.isMerging = isMerging
  }

  var isBatchFull: Bool { bytesOfBatch >= Self.bytesInBatch || batch.count >= Self.entriesInBatch }

  /// Finds out what the key of the next entry becomes.
  ///
  /// - Throws: `StorageError` with code `unsupported` if another entry has it.
  mutating func addKey(of index: Int, in content: any ImportContent) throws {
    let stored = try content.key(at: index)
    let (key, isUnresolved) = try keys.key(of: stored, isHashed: content.hasHashedKeys) {
      try content.entry(at: index)
    }
    guard knownKeys.insert(key).inserted else {
      throw StorageError(
        .unsupported,
        "Two entries of \(source) would have the key \(key), the second of them from \(stored.value.prefix(40).debugDescription)."
      )
    }
    allKeys.append(key)
    if isUnresolved { unresolved.insert(key) }
  }

  mutating func add(_ entry: StorageEntry, at index: Int) throws {
    batch.append(
      StorageEntry(
        key: allKeys[index], data: entry.data, createdAt: min(entry.createdAt, entry.updatedAt),
        updatedAt: entry.updatedAt))
    bytesOfBatch += entry.data.count
  }

  mutating func writeBatch() async throws {
    var new = batch
    if isMerging {
      let present = Set(try await engine.keysExist(batch.map(\.key)))
      new.removeAll { present.contains($0.key) }
      report.alreadyPresent += present.count
    }
    if !new.isEmpty { try await engine.writeEntries(new) }
    for entry in new {
      written.append(Written(entry.key, entry.data))
      report.imported += 1
      report.bytes += entry.data.count
      if unresolved.contains(entry.key) { report.unresolvedHashes += 1 }
    }
    batch = []
    bytesOfBatch = 0
  }

  /// Reads everything back that was written.
  ///
  /// - Throws: `StorageError` with code `corrupted` if it is not the same.
  func verify() async throws {
    var start = 0
    while start < written.count {
      var end = start
      var bytes = 0
      while end < written.count, end - start < Self.entriesInBatch, bytes < Self.bytesInBatch {
        bytes += written[end].length
        end += 1
      }
      let portion = written[start..<end]
      let stored = try await engine.readDataAndKeys(keys: portion.map(\.key))
      let isSame = portion.elementsEqual(stored) { expected, stored in
        let found = Written(stored.key, stored.data)
        return expected.key == found.key && expected.length == found.length
          && expected.checksum == found.checksum
      }
      guard isSame else {
        throw StorageError(
          .corrupted, "What was imported from \(source) is not what the target has after that.")
      }
      start = end
    }
    if !isMerging, case let count = try await engine.keyCount(), count != written.count {
      throw StorageError(
        .corrupted, "\(written.count) entries were imported from \(source), and the target has \(count).")
    }
  }
}
