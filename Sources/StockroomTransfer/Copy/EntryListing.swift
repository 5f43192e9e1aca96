import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What a copy compares of an entry instead of its value.
struct ListedEntry: Sendable {
  let key: CacheKey
  let times: EntryTimes
  /// Tells those apart that were created at the same time, if the engine says so.
  let sequence: UInt64?
  let size: Int
  /// Of the value, in this process.
  let digest: Int

  init(_ entry: StorageEntry) {
    key = entry.key
    times = EntryTimes(entry)
    sequence = entry.sequence
    size = entry.data.count
    // The hasher has another key in each process, so that nobody can prepare two values with one digest.
    var hasher = Hasher()
    entry.data.withUnsafeBytes { hasher.combine(bytes: $0) }
    digest = hasher.finalize()
  }

  func hasSameValue(as other: ListedEntry) -> Bool { size == other.size && digest == other.digest }
}

/// Entries of an engine without the values, in the order in which the keys were first written.
struct EntryListing: Sendable {
  private(set) var entries: [ListedEntry] = []

  var byKey: [CacheKey: ListedEntry] { Dictionary(entries.map { ($0.key, $0) }) { $1 } }

  var byteCount: Int { entries.reduce(0) { $0 + $1.size } }

  /// Reads the entries of the keys, some at a time, so that the values are not in memory together. O(N log N).
  ///
  /// - Parameters:
  ///   - batchSize: How many bytes of values are read at a time, about: how large they are is not known before.
  ///   - progress: Gets the number of keys that are done, and the bytes of their values.
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
      // What has been removed since is left out.
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
    try await sort(engine)
  }

  /// Does work that takes O(N log N) with this listing and another one: apart if that is long, so that other tasks go on (rule C5).
  func working<Result: Sendable>(
    with other: EntryListing = EntryListing(), _ work: @escaping @Sendable () -> Result
  ) async throws -> Result {
    if entries.count + other.entries.count < 10_000 { return work() }
    return try await DedicatedThread.runApart { _ in work() }
  }

  private init() {}

  /// Values are read so many at a time at most, since one of them may be very much larger than those before.
  private static let mostAtOnce = 256

  private mutating func sort(_ engine: any StorageEngine) async throws {
    let listing = self
    if entries.allSatisfy({ $0.sequence != nil }) {
      entries = try await working { listing.entries.sorted { ($0.sequence ?? 0) < ($1.sequence ?? 0) } }
      return
    }
    // Another engine's order is that of the creation times. Entries that have the same one it puts in order itself.
    entries = try await working {
      listing.entries.sorted { ($0.times.createdAt, $0.key) < ($1.times.createdAt, $1.key) }
    }
    var start = 0
    while start < entries.count {
      let time = entries[start].times.createdAt
      var end = start + 1
      while end < entries.count, entries[end].times.createdAt == time { end += 1 }
      if end - start > 1 {
        let ordered = try await engine.readEntries(keys: entries[start..<end].map(\.key))
        var places: [CacheKey: Int] = [:]
        for (place, entry) in ordered.enumerated() { places[entry.key] = place }
        entries[start..<end].sort { places[$0.key, default: .max] < places[$1.key, default: .max] }
      }
      start = end
    }
  }
}
