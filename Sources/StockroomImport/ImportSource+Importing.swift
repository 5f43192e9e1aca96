import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ImportSource {
  /// Copies all entries into an engine, in the order of their creation and with their times, as far as the
  /// engine can store times from another engine.
  ///
  /// The target must be empty, unless `merging` is true: then an entry whose key the target already has is
  /// skipped, and never replaced. Nothing is written before the source has been verified and all keys are
  /// known; if that requires the values, they are read an additional time. Entries are written in batches of
  /// about 8 MiB, so that memory does not grow with the size of the source, except for about 100 bytes for
  /// each entry. At the end, everything that was written is read back, and compared by length and checksum.
  ///
  /// An import that throws, or is cancelled, after it has begun to write leaves complete batches in the
  /// target: repeat it with `merging`, and it continues. Nothing else should write to the target in the
  /// meantime.
  ///
  /// - Parameters:
  ///   - engine: The target.
  ///   - keys: How keys are converted. By default, to those that a `Store` expects.
  ///   - merging: Whether the target may have entries.
  ///   - progress: Called after each batch.
  /// - Returns: The numbers of imported and of skipped entries.
  /// - Throws: `StorageError` with code ``StockroomCore/StorageError/Code/targetNotEmpty``; as ``open()``; `invalidKey`
  ///   or `decodingFailed` if a key cannot be converted: see ``ImportKeys``; `unsupported` if two entries would have
  ///   the same key, with nothing written; `corrupted` if an entry that is read back differs; what the engine throws;
  ///   `CancellationError`.
  @concurrent
  @discardableResult
  public func `import`(
    into engine: any StorageEngine, keys: ImportKeys = .identifiers, merging: Bool = false,
    progress: @Sendable (ImportProgress) -> Void = { _ in }
  ) async throws -> ImportReport {
    var importer = Importer(source: description, engine: engine, keys: keys, isMerging: merging)
    try await importer.refuseEntries()
    let content = try await open()
    importer.report.omissions = content.omissions
    try await importer.findKeys(in: content)
    // Finding the keys may have taken long.
    try await importer.refuseEntries()
    var completed = 0
    while completed < content.count {
      let entries = try await content.entries(from: completed)
      try await importer.write(entries, from: completed)
      completed += entries.count
      progress(
        ImportProgress(completed: completed, total: content.count, bytes: importer.report.bytes))
    }
    try await importer.verify()
    return importer.report
  }
}

extension ImportContent {
  /// The entries from an index on that fit into one batch: at least one, unless there are no more. Reads them on a new
  /// thread, so that no other task waits for the disk (rule C5).
  func entries(from start: Int) async throws -> [StorageEntry] {
    try await batch(from: start) { index in
      let entry = try self.entry(at: index)
      return (entry, entry.data.count + entry.key.value.utf8.count)
    }
  }

  /// The keys from an index on, up to the limits of a batch, each with its entry if `isWanted` returns true for the key.
  func keys(
    from start: Int, withEntriesOf isWanted: @escaping @Sendable (CacheKey) -> Bool
  ) async throws -> [(key: CacheKey, entry: StorageEntry?)] {
    try await batch(from: start) { index in
      let key = try self.key(at: index)
      let entry = try isWanted(key) ? self.entry(at: index) : nil
      return ((key, entry), (entry?.data.count ?? 0) + key.value.utf8.count)
    }
  }

  private func batch<Element: Sendable>(
    from start: Int, _ read: @escaping @Sendable (_ index: Int) throws -> (Element, size: Int)
  ) async throws -> [Element] {
    try await DedicatedThread.runOnNewThread { flag in
      var batch: [Element] = []
      var bytes = 0
      for index in start..<self.count {
        try flag.check()
        let (element, size) = try read(index)
        batch.append(element)
        bytes += size
        if bytes >= Importer.bytesInBatch || batch.count >= Importer.entriesInBatch { break }
      }
      return batch
    }
  }
}

/// Writes entries to an engine in batches, and reads them back.
private struct Importer {
  static let bytesInBatch = 8 << 20
  static let entriesInBatch = 1_000

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
  /// The keys of all entries, by their index.
  private var allKeys: [CacheKey] = []
  private var unresolved: Set<CacheKey> = []
  private var written: [Written] = []

  init(source: String, engine: any StorageEngine, keys: ImportKeys, isMerging: Bool) {
    self.source = source
    self.engine = engine
    self.keys = keys
    self.isMerging = isMerging
  }

  /// Throws if the target has entries, unless the import merges.
  ///
  /// - Throws: `StorageError` with code `targetNotEmpty`.
  func refuseEntries() async throws {
    if isMerging { return }
    let count = try await engine.keyCount()
    guard count == 0 else {
      throw StorageError(
        .targetNotEmpty,
        "\(source) is not imported, since the target has \(count.entryCountText). Merge to add to them.")
    }
  }

  /// Determines the keys of all entries in the engine.
  ///
  /// - Throws: `StorageError` with code `unsupported` if two entries would have the same key, `invalidKey` or
  ///   `decodingFailed` if a key cannot be converted.
  mutating func findKeys(in content: any ImportContent) async throws {
    let (keys, isHashed) = (keys, content.hasHashedKeys)
    var known: Set<CacheKey> = []
    var timer = YieldTimer()
    while allKeys.count < content.count {
      let start = allKeys.count
      let batch = try await content.keys(from: start) { keys.needsEntry(of: $0, isHashed: isHashed) }
      for (offset, (stored, entry)) in batch.enumerated() {
        try await timer.yieldIfDue()
        let (made, isUnresolved) = try keys.key(of: stored, isHashed: isHashed) {
          try entry ?? content.entry(at: start + offset)
        }
        // Drops the text that was hashed, which may have any length.
        let key = CacheKey(verbatim: made.value)
        guard known.insert(key).inserted else {
          throw StorageError(
            .unsupported,
            "Two entries of \(source) would have the key \(key), the second of them from \(stored.value.prefix(40).debugDescription)."
          )
        }
        allKeys.append(key)
        if isUnresolved { unresolved.insert(key) }
      }
    }
  }

  /// Writes the entries of the source from an index on, as one batch.
  mutating func write(_ entries: [StorageEntry], from start: Int) async throws {
    var new = zip(allKeys[start...], entries).map { key, entry in
      StorageEntry(
        key: key, data: entry.data, createdAt: min(entry.createdAt, entry.updatedAt),
        updatedAt: entry.updatedAt)
    }
    if isMerging {
      let present = Set(try await engine.keysExist(new.map(\.key)))
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
  }

  /// Reads back everything that was written.
  ///
  /// - Throws: `StorageError` with code `corrupted` if it differs.
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
          .corrupted, "The target does not contain what was imported from \(source).")
      }
      start = end
    }
    if !isMerging, case let count = try await engine.keyCount(), count != written.count {
      throw StorageError(
        .corrupted, "\(written.count) entries were imported from \(source), and the target has \(count).")
    }
  }
}
