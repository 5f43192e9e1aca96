import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How the entries of an engine are read for an archive: as a snapshot, as efficiently as the engine allows.
enum EntrySource {
  /// A snapshot, one entry after another.
  case stream(any SnapshotStreamingEngine)
  /// All with one call, which returns a snapshot.
  case snapshot(any StorageEngine)
  /// All with one call. A transaction then reads those that others have changed in the meantime. Their times are read
  /// after the transaction.
  case transaction(any StorageEngine)
  /// All with one call, without a snapshot.
  case withoutSnapshot(any StorageEngine)

  /// - Throws: `StorageError` with code `unsupported` if a snapshot is required and the engine cannot provide
  ///   one.
  init(_ engine: some StorageEngine, requiringSnapshot isRequired: Bool) throws {
    let capabilities = engine.capabilities
    if let engine = engine as? any SnapshotStreamingEngine {
      self = .stream(engine)
    } else if capabilities.contains(.snapshotReads) {
      self = .snapshot(engine)
    } else if capabilities.contains(.transactions) {
      self = .transaction(engine)
    } else if isRequired {
      throw StorageError(
        .unsupported,
        "A \(type(of: engine)) has neither snapshots nor transactions, so that no snapshot of its entries can be read."
      )
    } else {
      self = .withoutSnapshot(engine)
    }
  }

  var isSnapshot: Bool { if case .withoutSnapshot = self { false } else { true } }

  /// Calls `body` with each entry, in the order of creation, on a thread that may block.
  func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    let entries: [StorageEntry]
    switch self {
    case .stream(let engine): return try await engine.forEachEntry(body)
    case .snapshot(let engine), .withoutSnapshot(let engine): entries = try await engine.readAllEntries()
    case .transaction(let engine): entries = try await Self.entriesInTransaction(of: engine)
    }
    try await DedicatedThread.runOnNewThread { flag in
      for entry in entries {
        try flag.check()
        try body(entry)
      }
    }
  }

  /// The entries as of a transaction. A transaction does not return timestamps. They are read before it and again after
  /// it, since an entry may have been written in between, even with the value that it already had.
  private static func entriesInTransaction(of engine: some StorageEngine) async throws -> [StorageEntry] {
    let read = try await engine.readAllEntries()
    var snapshot = try await engine.withTransaction { try Snapshot($0, after: read) }
    var start = 0
    while start < read.count {
      try Task.checkCancellation()
      var (end, size) = (start, 0)
      repeat {
        size += read[end].data.count
        end += 1
      } while end < read.count && end - start < mostReadAgain && size < largestReadAgain
      let entries = read[start..<end]
      snapshot.noteRewritten(entries, as: try await engine.readEntries(keys: entries.map(\.key)))
      start = end
    }
    let changed = Array(snapshot.changed.keys)
    return snapshot.entries(of: read, laterEntries: try await engine.readEntries(keys: changed))
  }

  /// How many entries, and about how many bytes of their values, are read again at a time.
  private static let (mostReadAgain, largestReadAgain) = (256, 8 << 20)

  /// The state of the entries during a transaction.
  private struct Snapshot: Sendable {
    /// The time at which the transaction had read everything. Writes that it has read took effect before, all others
    /// after.
    private let date: Date
    /// The keys of the entries whose values were the same as before.
    private var same: Set<CacheKey> = []
    /// The values of the other entries.
    private(set) var changed: [CacheKey: Data] = [:]

    init(_ transaction: any StorageTransaction, after read: [StorageEntry]) throws {
      var new = Set(try transaction.allKeys())
      for entry in read {
        guard new.remove(entry.key) != nil, let data = try transaction.read(key: entry.key) else { continue }
        if data == entry.data { same.insert(entry.key) } else { changed[entry.key] = data }
      }
      for key in new { changed[key] = try transaction.read(key: key) }
      // Set last: an engine may admit other writers until the body ends, and repeat the body only if they have changed
      // what it has read.
      date = Timestamp.now().date
    }

    /// Marks entries as changed that were written again before ``date`` with the value that they had: that is a write
    /// (rule W2).
    ///
    /// - Parameters:
    ///   - read: Entries as they were before the transaction.
    ///   - later: The entries with the same keys as they were after it.
    mutating func noteRewritten(_ read: ArraySlice<StorageEntry>, as later: [StorageEntry]) {
      let later = Dictionary(later.map { ($0.key, $0) }) { $1 }
      for entry in read where same.contains(entry.key) {
        guard let last = later[entry.key], last.updatedAt <= date,
          last.updatedAt != entry.updatedAt || Self.isAnother(last, than: entry)
        else { continue }
        same.remove(entry.key)
        changed[entry.key] = entry.data
      }
    }

    /// Whether the key has been removed and written again, so that its entry comes after the others.
    private static func isAnother(_ last: StorageEntry, than entry: StorageEntry) -> Bool {
      last.createdAt != entry.createdAt || last.sequence != entry.sequence
    }

    /// The entries with times, in the order of creation.
    ///
    /// - Parameters:
    ///   - read: The entries before the transaction.
    ///   - laterEntries: The changed entries after the transaction.
    func entries(of read: [StorageEntry], laterEntries: [StorageEntry]) -> [StorageEntry] {
      var changed = changed
      let later = Dictionary(laterEntries.map { ($0.key, $0) }) { $1 }
      var entries: [StorageEntry] = []
      entries.reserveCapacity(same.count + changed.count)
      for var entry in read {
        if same.contains(entry.key) {
          entries.append(entry)
        } else if let data = changed[entry.key] {
          // Removed and written again before the transaction, so that it comes after the others.
          let last = later[entry.key]
          if let last, Self.isAnother(last, than: entry), last.createdAt <= date { continue }
          entry.data = data
          entry.updatedAt = max(entry.updatedAt, min(last?.updatedAt ?? date, date))
          entries.append(entry)
          changed[entry.key] = nil
        }
      }
      // Entries that have been removed since then come last, sorted by key, since their order is not known.
      let removed = changed.keys.filter { later[$0] == nil }.sorted()
      for key in laterEntries.map(\.key) + removed {
        guard let data = changed[key] else { continue }
        let last = later[key]
        entries.append(
          StorageEntry(
            key: key, data: data, createdAt: min(last?.createdAt ?? date, date),
            updatedAt: min(last?.updatedAt ?? date, date)))
      }
      return entries
    }
  }
}
