import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines with a maximum size of batches and removals, and engines that perform large ones in parts.

extension SizeFault {
  static let ofBatches: [SizeFault] = [
    // The service returns unprocessed items, and the engine does not retry them.
    .init(.w1, "sizes.batches", "writes 25 entries of a batch", shows: "no failure with 25; with 26") {
      AlteredEngine(base: $0, batch: { Array($0.prefix(25)) })
    },
    .init(.w1, "sizes.batches", "loses an entry between two parts", shows: "no failure with 25; with 26") {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.enumerated().filter { $0.offset % 26 != 25 }.map(\.element)
        })
    },
    .init(.w1, "sizes.batches", "refuses batches of more than 500", shows: "no failure with 500; with 501") {
      AlteredEngine(
        base: $0,
        batch: {
          if $0.count > 500 { throw StorageError(.unsupported, "A batch has 500 entries at most.") }
          return $0
        })
    },
    .init(
      .w1, "sizes.batches", "keeps the last 4,096 entries of a batch",
      shows: "no failure with 4096; with 4097"
    ) {
      AlteredEngine(base: $0, batch: { $0.suffix(4_096) })
    },
    .init(.w1, "sizes.batches", "writes parts of 64, and forgets the last that is not full", shows: "with 65")
    {
      AlteredEngine(base: $0, batch: { $0.count > 64 ? $0.dropLast($0.count % 64) : $0 })
    },
    .init(.w1, "sizes.batches", "pairs the keys of the second part with values of the first") {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.enumerated().map { ($1.key, batch[(128..<256).contains($0) ? $0 - 128 : $0].data) }
        })
    },
    .init(.w1, "sizes.all-keys", "has room for 1,024 keys", shows: "no failure with 1024; with 1025") {
      HasRoom(base: $0, count: 1_024)
    },
    .init(.w5, "sizes.apply", "does 1,000 operations", shows: "with 7") {
      AlteredEngine(base: $0, operations: { Array($0.prefix(1_000)) })
    },
    .init(.w5, "sizes.apply", "refuses a transaction of more than a hundred operations") {
      AlteredEngine(
        base: $0,
        operations: {
          if $0.count > 100 { throw StorageError(.unsupported, "A transaction has 100 operations at most.") }
          return $0
        })
    },
    .init(.w5, "sizes.apply", "removes at the end what more than 512 operations remove") {
      AlteredEngine(
        base: $0,
        operations: { operations in
          guard operations.count > 512 else { return operations }
          return operations.filter { if case .remove = $0 { false } else { true } }
            + operations.filter { if case .remove = $0 { true } else { false } }
        })
    },
    .init(
      .w3, "sizes.repeats-in-batches", "keeps the first of two entries in a large batch", shows: "with 101"
    ) {
      AlteredEngine(
        base: $0,
        batch: { batch in
          var seen: Set<CacheKey> = []
          return batch.count > 100 ? batch.filter { seen.insert($0.key).inserted } : batch
        })
    },
    .init(.w3, "sizes.repeats-in-batches", "does the last part of 300 entries first") {
      AlteredEngine(base: $0, batch: { $0.count > 300 ? Array($0.dropFirst(300) + $0.prefix(300)) : $0 })
    },
    .init(
      .w4, "sizes.rejected-batches", "validates a batch in parts of 25",
      shows: "no failure with 24; with 25"
    ) {
      PartwiseEngine(base: $0, size: 25, calls: [.write], validatesParts: true)
    },
    .init(.w4, "sizes.rejected-batches", "validates removals in parts of 100") {
      PartwiseEngine(base: $0, size: 100, calls: [.removal], validatesParts: true)
    },
    .init(.w4, "sizes.rejected-batches", "validates apply in parts of 500") {
      PartwiseEngine(base: $0, size: 500, calls: [.apply], validatesParts: true)
    },
    .init(
      .w2, "sizes.timestamps", "renews createdAt beyond the hundredth entry of a batch", shows: "with 101"
    ) {
      RenewsBeyond(base: $0, count: 100)
    },
    .init(.w2, "sizes.timestamps", "replaces whole rows when it applies more than 50 operations") {
      AlteredEngine(
        base: $0,
        operations: { operations in
          guard operations.count > 50 else { return operations }
          return operations.flatMap { operation -> [StorageOperation] in
            if case .write(_, let key) = operation { [.remove(key: key), operation] } else { [operation] }
          }
        })
    },
    .init(
      .r6, "sizes.timestamps", "puts what a batch of more than 50 overwrites at the end",
      shows: "no failure with 50; with 51"
    ) {
      ReordersOverwrites(base: $0, beyond: 50)
    },
    .init(.c4, "sizes.cancelled-batches", "stops between two parts of 100") {
      PartwiseEngine(base: $0, size: 100, calls: [.write], isCancellable: true)
    },
    .init(.c4, "sizes.cancelled-batches", "stops between two parts of 100 when it applies") {
      PartwiseEngine(base: $0, size: 100, calls: [.apply], isCancellable: true)
    },
    .init(.c4, "sizes.cancelled-batches", "stops between two parts of 100 when it removes") {
      PartwiseEngine(base: $0, size: 100, calls: [.removal], isCancellable: true)
    },
    .init(.c4, "sizes.cancelled-batches", "stops between two parts of 50 when it removes everything") {
      PartwiseEngine(base: $0, size: 50, calls: [.removalOfEverything], isCancellable: true)
    },
    .init(
      .c4, "sizes.cancelled-transactions", "says that a transaction was cancelled when it is done",
      claiming: .transactions
    ) { ThrowsAfterTransactions(base: $0) },
    .init(.d1, "sizes.removals", "removes 1,000 keys") {
      AlteredEngine(base: $0, removal: { Array($0.prefix(1_000)) })
    },
    .init(.d1, "sizes.removals", "stops at the first absent key of more than a hundred") {
      StopsAtAbsentKeys(base: $0, beyond: 100)
    },
    // One range is cheaper than a thousand keys.
    .init(.d1, "sizes.removals", "removes the range from the first to the last of many keys") {
      RemovesRanges(base: $0, beyond: 128)
    },
    .init(
      .d2, "sizes.removal-of-everything", "removes the first 1,000 entries",
      shows: "no failure with 1000; with 1001"
    ) {
      RemovesTheFirst(base: $0, count: 1_000)
    },
    .init(
      .t2, "sizes.removal-of-everything", "a body removes the first 1,000 entries",
      shows: "no failure with 1000; with 1001", claiming: .transactions
    ) { AltersTransactions(base: $0) { RemovesTheFirstInBodies($0, count: 1_000) } },
    .init(
      .t2, "sizes.removal-of-everything", "a body counts what it has removed, beyond 1,000 entries",
      shows: "no failure with 1000; with 1001", claiming: .transactions
    ) { AltersTransactions(base: $0) { CountsRemovedInBodies($0, beyond: 1_000) } },
    .init(
      .d2, "sizes.removal-of-everything", "removes the first 10,000 entries", at: .standard,
      shows: "no failure with 10000; with 10001"
    ) { RemovesTheFirst(base: $0, count: 10_000) },
  ]

  static let ofWrongTiming: [SizeFault] = [
    .init(.w4, "sizes.write-appears-at-once", "writes parts of 500") {
      PartwiseEngine(base: $0, size: 500, calls: [.write])
    },
    .init(.w4, "sizes.write-appears-at-once", "writes parts of 64 KiB") {
      WritesPartsOfBytes(base: $0, size: 65_536)
    },
    .init(.w4, "sizes.import-appears-at-once", "writes entries of others in parts of 500") {
      WritesEntriesInParts(base: $0, size: 500)
    },
    .init(
      .w4, "sizes.transaction-appears-at-once", "commits the changes of a body in parts of 500",
      claiming: .transactions
    ) { CommitsInParts(base: $0) { _, count in count == 500 } },
    .init(
      .w4, "sizes.transaction-of-many-bytes-appears-at-once", "commits a body's changes 2 MiB at a time",
      claiming: .transactions
    ) { CommitsInParts(base: $0) { bytes, _ in bytes >= 2 << 20 } },
    .init(.w4, "sizes.writeMany-of-many-bytes-appears-at-once", "writes 2 MiB at a time") {
      WritesPartsOfBytes(base: $0, size: 2 << 20)
    },
    .init(.w4, "sizes.apply-of-many-bytes-appears-at-once", "applies 24 operations at a time") {
      PartwiseEngine(base: $0, size: 24, calls: [.apply])
    },
    .init(
      .w4, "sizes.writeEntries-of-many-bytes-appears-at-once", "writes 30 entries of others at a time"
    ) { WritesEntriesInParts(base: $0, size: 30) },
    .init(.w4, "sizes.apply-appears-at-once", "applies parts of 1,000") {
      PartwiseEngine(base: $0, size: 1_000, calls: [.apply])
    },
    .init(.w4, "sizes.removal-appears-at-once", "removes parts of 1,000") {
      PartwiseEngine(base: $0, size: 1_000, calls: [.removal])
    },
    .init(.w4, "sizes.removal-appears-at-once", "removes parts of 10,000", at: .standard) {
      PartwiseEngine(base: $0, size: 10_000, calls: [.removal])
    },
    .init(.w4, "sizes.removal-of-everything-appears-at-once", "removes everything in parts of 256") {
      PartwiseEngine(base: $0, size: 256, calls: [.removalOfEverything])
    },
    .init(.w4, "sizes.replacement-appears-at-once", "removes everything before a large batch") {
      PartwiseEngine(base: $0, size: 1_000, calls: [.replacement])
    },
    .init(.r3, "sizes.readMany-returns-one-snapshot", "reads 500 keys at a time") {
      AsksForPartsOfRequests(base: $0, call: .readMany)
    },
    .init(.r3, "sizes.readDataAndKeys-returns-one-snapshot", "reads 500 keys and values at a time") {
      AsksForPartsOfRequests(base: $0, call: .readDataAndKeys)
    },
    .init(
      .r3, "sizes.readEntries-returns-one-snapshot", "reads 500 entries at a time",
      claiming: .preservesTimestamps
    ) { AsksForPartsOfRequests(base: $0, call: .readEntries) },
    .init(.r3, "sizes.readAllData-returns-one-snapshot", "reads pages of 500 values") {
      PagewiseEngine(base: $0, call: .allData)
    },
    .init(.r3, "sizes.readAllData-returns-one-snapshot", "reads pages of 2,000 values", at: .standard) {
      PagewiseEngine(base: $0, size: 2_000, call: .allData)
    },
    .init(.r3, "sizes.readAllDataAndKeys-returns-one-snapshot", "reads pages of 500 entries") {
      PagewiseEngine(base: $0, call: .allPairs)
    },
    .init(.r3, "sizes.readAllEntries-returns-one-snapshot", "reads pages of 500 entries in order") {
      PagewiseEngine(base: $0, call: .allEntries)
    },
    .init(.r3, "sizes.scan-returns-one-snapshot", "scans pages of 500") {
      PagewiseEngine(base: $0, call: .scan)
    },
    .init(.r3, "sizes.allKeys-returns-one-snapshot", "lists pages of 500 keys") {
      PagewiseEngine(base: $0, call: .allKeys)
    },
  ]
}

/// A cache: new entries evict the oldest ones.
struct HasRoom: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  private func makeRoom() async throws {
    let surplus = try await base.keyCount() - count
    if surplus > 0 { try await base.remove(keys: base.readAllEntries().prefix(surplus).map(\.key)) }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    try await makeRoom()
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    try await makeRoom()
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    try await makeRoom()
  }
}

/// Writes the rest of a batch in a faster way, which replaces whole rows.
struct RenewsBeyond: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.apply(
      dataAndKeys.enumerated().flatMap { number, entry -> [StorageOperation] in
        let write = StorageOperation.write(entry.data, key: entry.key)
        return number < count ? [write] : [.remove(key: entry.key), write]
      })
  }
}

/// Writes a part whenever a buffer is full.
struct WritesPartsOfBytes: FaultyEngine {
  let base: ReferenceEngine
  let size: Int
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    var (part, bytes): ([(key: CacheKey, data: Data)], Int) = ([], 0)
    for entry in dataAndKeys {
      part.append(entry)
      bytes += entry.data.count
      guard bytes >= size else { continue }
      try await base.write(part)
      (part, bytes) = ([], 0)
      await Task.yield()
    }
    try await base.write(part)
  }
}

struct StopsAtAbsentKeys: FaultyEngine {
  let base: ReferenceEngine
  let beyond: Int
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    let existing = Set(try await base.keysExist(keys))
    try await base.remove(keys: keys.count > beyond ? Array(keys.prefix { existing.contains($0) }) : keys)
  }
}

struct RemovesRanges: FaultyEngine {
  let base: ReferenceEngine
  let beyond: Int
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    guard keys.count > beyond, let first = keys.min(), let last = keys.max() else {
      return try await base.remove(keys: keys)
    }
    try await base.remove(keys: base.allKeys().filter { first <= $0 && $0 <= last })
  }
}

struct RemovesTheFirst: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  func removeAllData() async throws { try await base.remove(keys: Array(base.allKeys().prefix(count))) }
}

/// Reads entries by pages, each of which begins after the time of the last entry of the previous one.
struct PagesByTime: FaultyEngine {
  let base: ReferenceEngine
  let size: Int
  func readAllEntries() async throws -> [StorageEntry] {
    var (left, found) = (try await base.readAllEntries()[...], [StorageEntry]())
    while let last = left.prefix(size).last {
      found += left.prefix(size)
      left = left.dropFirst(size).drop { $0.createdAt <= last.createdAt }
    }
    return found
  }
}
