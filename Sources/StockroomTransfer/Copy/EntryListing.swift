import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The data of an entry that a copy compares instead of its value.
struct ListedEntry: Sendable {
  let key: CacheKey
  let times: EntryTimes
  /// Distinguishes entries that were created at the same time, if the engine provides it.
  let sequence: UInt64?
  let size: Int
  /// The digest of the value, valid in this process.
  let digest: Int

  init(_ entry: StorageEntry) {
    key = entry.key
    times = EntryTimes(entry)
    sequence = entry.sequence
    size = entry.data.count
    // The hasher has another key in each process, so that nobody can prepare two values with the same digest.
    var hasher = Hasher()
    entry.data.withUnsafeBytes { hasher.combine(bytes: $0) }
    digest = hasher.finalize()
  }

  func hasSameValue(as other: ListedEntry) -> Bool { size == other.size && digest == other.digest }
}

/// Entries of an engine without their values, in the order in which the keys were first written.
struct EntryListing: Sendable {
  private(set) var entries: [ListedEntry] = []

  var byKey: [CacheKey: ListedEntry] { Dictionary(entries.map { ($0.key, $0) }) { $1 } }

  var byteCount: Int { entries.reduce(0) { $0 + $1.size } }

  /// Reads the entries of the keys, some at a time, so that the values are not in memory together. O(N log N).
  ///
  /// - Parameters:
  ///   - batchSize: The approximate number of bytes of values that are read at a time: their sizes are not
  ///     known before.
  ///   - progress: Receives the number of keys that have been read, and the bytes of their values.
  @concurrent init(
    of keys: [CacheKey], in engine: any StorageEngine, batchSize: Int,
    progress: (_ entries: Int, _ bytes: Int) -> Void = { _, _ in }
  ) async throws {
    var byteCount = 0
    var batchCount = 16
    var start = 0
    entries.reserveCapacity(keys.count)
    while start < keys.count {
      try Task.checkCancellation()
      let end = min(start + batchCount, keys.count)
      // Entries that have been removed in the meantime are omitted.
      let found = try await engine.readEntries(keys: Array(keys[start..<end])).map(ListedEntry.init)
      entries += found
      let bytes = found.reduce(0) { $0 + $1.size }
      byteCount += bytes
      start = end
      progress(start, byteCount)
      if bytes > batchSize / 2 {
        batchCount = max(1, batchCount / 2)
      } else if bytes < batchSize / 8 {
        batchCount = min(Self.mostAtOnce, batchCount * 2)
      }
    }
    try await sort(as: engine, batchSize: batchSize)
  }

  /// Does work that takes O(N log N) with this listing and another one: on a new thread if there are many entries, so
  /// that other tasks continue (rule C5).
  func working<Result: Sendable>(
    with other: EntryListing = EntryListing(), _ work: @escaping @Sendable () -> Result
  ) async throws -> Result {
    if entries.count + other.entries.count < 10_000 { return work() }
    return try await DedicatedThread.runOnNewThread { _ in work() }
  }

  private init() {}

  /// The maximum number of values that are read at a time, since one of them may be much larger than the
  /// earlier ones.
  private static let mostAtOnce = 256

  /// Sorts the entries in the order of an engine's `readAllEntries()` (rule R6).
  private mutating func sort(as engine: any StorageEngine, batchSize: Int) async throws {
    let listing = self
    if entries.allSatisfy({ $0.sequence != nil }) {
      entries = try await working {
        listing.entries.sorted { ($0.sequence ?? 0, $0.key) < ($1.sequence ?? 0, $1.key) }
      }
      return
    }
    // An engine without sequence numbers shows its order only in the results of its reads. In most cases, that is the
    // order of the creation times.
    entries = try await working {
      listing.entries.sorted { ($0.times.createdAt, $0.key) < ($1.times.createdAt, $1.key) }
    }
    if try await hasOrder(of: engine, batchSize: batchSize) { return }
    let places = try await engine.readEntries(keys: entries.map(\.key)).enumerated()
      .reduce(into: [CacheKey: Int]()) { $0[$1.element.key] = $1.offset }
    // Entries that have been removed in the meantime come last.
    entries = try await working {
      listing.entries.sorted {
        (places[$0.key, default: .max], $0.key) < (places[$1.key, default: .max], $1.key)
      }
    }
  }

  /// Whether an engine reads the entries in this order. Reads them once more, in portions that overlap by one
  /// entry.
  private func hasOrder(of engine: any StorageEngine, batchSize: Int) async throws -> Bool {
    var start = 0
    while start + 1 < entries.count {
      try Task.checkCancellation()
      var end = start + 2
      var size = entries[start].size + entries[start + 1].size
      while end < entries.count, end - start < Self.mostAtOnce, size + entries[end].size <= batchSize {
        size += entries[end].size
        end += 1
      }
      let keys = entries[start..<end].map(\.key)
      let found = try await engine.readEntries(keys: keys).map(\.key)
      // Entries that have been removed in the meantime have no position.
      let present = Set(found)
      if found != keys.filter({ present.contains($0) }) { return false }
      start = end - 1
    }
    return true
  }
}
