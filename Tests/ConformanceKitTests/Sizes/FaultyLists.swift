import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that list, count and scan only a limited number of entries.

extension SizeFault {
  static let ofLists: [SizeFault] = [
    .init(.r6, "sizes.entries-of-equal-time", "begins each page of 5,000 entries behind the time of the last")
    {
      PagesByTime(base: $0, size: 5_000)
    },
    // A service returns one page, and the engine does not request the next.
    .init(.k3, "sizes.all-keys", "lists 1,000 keys", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, keys: { Array($0.prefix(1_000)) })
    },
    .init(.k3, "sizes.all-keys", "lists 700 keys", shows: "no failure with 700; with 701") {
      AlteredEngine(base: $0, keys: { Array($0.prefix(700)) })
    },
    .init(
      .k3, "sizes.all-keys", "lists 10,000 keys", at: .standard, shows: "no failure with 10000; with 10001"
    ) {
      AlteredEngine(base: $0, keys: { Array($0.prefix(10_000)) })
    },
    // Treats a full last page as one that is followed by another.
    .init(.k3, "sizes.all-keys", "forgets a last page that is full", shows: "with 100 ") {
      AlteredEngine(base: $0, keys: { $0.count.isMultiple(of: 100) ? $0.dropLast(100) : $0 })
    },
    // Each page begins with the key that it should begin after.
    .init(
      .k3, "sizes.all-keys", "lists the first key of a page twice", shows: "no failure with 256; with 257"
    ) {
      AlteredEngine(
        base: $0,
        keys: { keys in
          keys.enumerated().flatMap { number, key in
            number > 0 && number % 256 == 0 ? [key, key] : [key]
          }
        })
    },
    .init(.l2, "sizes.key-count", "counts to 1,000", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, count: { min($0, 1_000) })
    },
    .init(.l2, "sizes.key-count", "counts in a byte", shows: "no failure with 255; with 256") {
      AlteredEngine(base: $0, count: { $0 % 256 })
    },
    .init(.l2, "sizes.key-count", "estimates what is more than a thousand") {
      AlteredEngine(base: $0, count: { $0 > 1_000 ? $0 / 16 * 16 : $0 })
    },

    .init(.r3, "sizes.everything", "returns 1,000 values", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, values: { Array($0.prefix(1_000)) })
    },
    .init(.r3, "sizes.everything", "loses the entry at the boundary of a page", shows: "with 513") {
      AlteredEngine(
        base: $0, pairs: { pairs in pairs.enumerated().filter { $0.offset != 512 }.map(\.element) })
    },
    .init(.r3, "sizes.everything", "returns the first page again for the last", shows: "with 129") {
      AlteredEngine(
        base: $0,
        values: { values in
          let last = values.count % 128
          return values.count > 128 && last > 0 ? values.dropLast(last) + values.prefix(last) : values
        })
    },
    .init(.r3, "sizes.everything", "pairs the second page with the values of the first") {
      AlteredEngine(
        base: $0,
        pairs: { pairs in
          pairs.enumerated().map { ($1.key, pairs[$0 >= 500 && $0 < 1_000 ? $0 - 500 : $0].data) }
        })
    },

    .init(.r6, "sizes.all-entries", "returns 1,000 entries", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, entries: { Array($0.prefix(1_000)) })
    },
    .init(.r6, "sizes.all-entries", "sorts each page of 200 entries") {
      AlteredEngine(
        base: $0,
        entries: { entries in
          stride(from: 0, to: entries.count, by: 200).flatMap { start in
            let page = entries[start..<min(start + 200, entries.count)]
            return entries.count > 200 ? page.sorted { $0.key < $1.key } : Array(page)
          }
        })
    },
    // The position of an entry is stored as a text of three digits.
    .init(.r6, "sizes.all-entries", "sorts places as texts", shows: "no failure with 1000; with 1001") {
      AlteredEngine(
        base: $0,
        entries: { entries in
          let places = entries.indices.map {
            $0 < 1_000 ? String(String($0 + 1_000).dropFirst()) : String($0)
          }
          return zip(places, entries).sorted { $0.0 < $1.0 }.map(\.1)
        })
    },

    .init(.r5, "sizes.scans", "scans one page", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, limit: { $0 ?? 1_000 })
    },
    .init(.r5, "sizes.scans", "has a highest limit", shows: "no failure with 500; with 501") {
      AlteredEngine(base: $0, limit: { $0.map { min($0, 500) } })
    },
    .init(.r5, "sizes.scans", "has a limit of a byte", shows: "no failure with 254; with 255") {
      AlteredEngine(base: $0, limit: { $0.map { $0 > 1_000_000 ? $0 : $0 % 256 } })
    },
    .init(.r5, "sizes.scans", "appends the second page where it should merge it") {
      AlteredEngine(
        base: $0,
        scanned: { entries in
          entries.count > 512
            ? entries.enumerated().filter { $0.offset % 2 == 0 }.map(\.element)
              + entries.enumerated().filter { $0.offset % 2 == 1 }.map(\.element) : entries
        })
    },
  ]

  static let ofRequests: [SizeFault] = [
    .init(
      .k1, "sizes.refused-requests", "validates the first hundred keys",
      shows: "no failure with 100; with 101"
    ) {
      ValidatesTheFirst(base: $0, count: 100)
    },
    .init(
      .k1, "sizes.refused-requests", "validates the first hundred keys of a request for entries",
      shows: "no failure with 100; with 101"
    ) {
      ReadsEntriesInParts(base: $0, size: 100, validatesAll: false)
    },
    .init(
      .r6, "sizes.some-entries", "reads entries in parts of 100", shows: "no failure with 100; with 101"
    ) {
      ReadsEntriesInParts(base: $0, size: 100)
    },
    .init(.r2, "sizes.requests", "answers for 100 keys", shows: "no failure with 100; with 101") {
      AlteredEngine(base: $0, request: { Array($0.prefix(100)) })
    },
    .init(
      .r2, "sizes.requests", "has 999 parameters in a statement", shows: "no failure with 999; with 1000"
    ) {
      AlteredEngine(
        base: $0,
        request: {
          if $0.count > 999 { throw StorageError(.io, "There are too many parameters in the statement.") }
          return $0
        })
    },
    .init(.r2, "sizes.requests", "asks for each of more than a hundred keys once") {
      AlteredEngine(
        base: $0,
        request: { request in
          var seen: Set<CacheKey> = []
          return request.count > 100 ? request.filter { seen.insert($0).inserted } : request
        })
    },
    .init(.r2, "sizes.requests", "sorts large requests") {
      AlteredEngine(base: $0, request: { $0.count > 512 ? $0.sorted() : $0 })
    },
    .init(.r2, "sizes.requests", "loses a part of one key", shows: "with 51") {
      AlteredEngine(base: $0, request: { $0.count > 50 && $0.count % 50 == 1 ? $0.dropLast() : $0 })
    },
    .init(.r2, "sizes.requests", "counts the keys of a request in 16 bits", at: .standard) {
      AlteredEngine(base: $0, request: { Array($0.prefix($0.count % 65_536)) })
    },
    .init(
      .r2, "sizes.requests", "counts the keys of a request in 15 bits", at: .standard, shows: "with 32768"
    ) {
      AlteredEngine(
        base: $0,
        request: {
          if $0.count > 32_767 { throw StorageError(.io, "The number of parameters is negative.") }
          return $0
        })
    },
    .init(.r2, "sizes.requests", "returns the parts of a large answer as they come") {
      AlteredEngine(base: $0, requested: { $0.count > 256 ? Array($0.dropFirst(256) + $0.prefix(256)) : $0 })
    },
    .init(.l1, "sizes.keys-exist", "looks for 1,000 keys", shows: "no failure with 1000; with 1001") {
      AlteredEngine(base: $0, question: { Array($0.prefix(1_000)) })
    },
    .init(.l1, "sizes.keys-exist", "looks for large requests in its own order") {
      AlteredEngine(base: $0, question: { $0.count > 128 ? $0.sorted() : $0 })
    },
    .init(.l1, "sizes.keys-exist", "leaves the last key of each part out", shows: "with 64") {
      AlteredEngine(
        base: $0,
        question: { keys in
          keys.enumerated().filter { $0.offset % 64 != 63 }.map(\.element)
        })
    },
  ]
}

/// Validates the beginning of a request, and treats the rest as absent.
struct ValidatesTheFirst: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  private func valid(_ keys: [CacheKey]) throws -> [CacheKey] {
    try Array(keys.prefix(count)).validate()
    return keys.filter { (1...511).contains($0.value.utf8.count) }
  }
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: valid(keys)) }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await base.readDataAndKeys(keys: valid(keys))
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(valid(keys)) }
}
