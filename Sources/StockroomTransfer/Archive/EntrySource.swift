import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How the entries of an engine are read for an archive: as they are at one moment, as cheaply as the engine allows.
enum EntrySource {
  /// One after another.
  case stream(any SnapshotStreamingEngine)
  /// All with one call, which shows one moment.
  case snapshot(any StorageEngine)
  /// All with one call, and what others have changed meanwhile in one transaction.
  case transaction(any StorageEngine)
  /// All with one call, whatever others change meanwhile.
  case anyMoment(any StorageEngine)

  /// - Throws: `StorageError` with code `unsupported` if the engine cannot show one moment, and it has to.
  init(_ engine: some StorageEngine, requiringOneMoment isRequired: Bool) throws {
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
        "A \(type(of: engine)) has neither snapshots nor transactions, so that its entries cannot be read as they are at one moment."
      )
    } else {
      self = .anyMoment(engine)
    }
  }

  var isOneMoment: Bool { if case .anyMoment = self { false } else { true } }

  /// Calls `body` with each entry, in the order of creation, on a thread that may wait.
  func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    let entries: [StorageEntry]
    switch self {
    case .stream(let engine): return try await engine.forEachEntry(body)
    case .snapshot(let engine), .anyMoment(let engine): entries = try await engine.readAllEntries()
    case .transaction(let engine): entries = try await Self.entriesAtOneMoment(of: engine)
    }
    try await DedicatedThread.runApart { flag in
      for entry in entries {
        try flag.check()
        try body(entry)
      }
    }
  }

  /// The entries as they are during a transaction, which has no times: those are read before. What has been changed in between counts as
  /// written during the transaction.
  private static func entriesAtOneMoment(of engine: some StorageEngine) async throws -> [StorageEntry] {
    let read = try await engine.readAllEntries()
    return try await engine.withTransaction { transaction in
      let now = Timestamp.now().date
      var new = Set(try transaction.allKeys())
      var entries: [StorageEntry] = []
      entries.reserveCapacity(new.count)
      for var entry in read {
        guard let data = try transaction.read(key: entry.key) else { continue }
        new.remove(entry.key)
        if data != entry.data {
          entry.data = data
          entry.updatedAt = max(entry.updatedAt, now)
        }
        entries.append(entry)
      }
      for key in new.sorted() {
        guard let data = try transaction.read(key: key) else { continue }
        entries.append(StorageEntry(key: key, data: data, createdAt: now, updatedAt: now))
      }
      return entries
    }
  }
}
