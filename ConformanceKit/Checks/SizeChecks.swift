import StockroomCore

// Lists, requests and scans of any size: rules K1, K3, R2, R3, R5, R6, L1 and L2.

extension CheckDefinition {
  @CheckList static var sizeChecks: [CheckDefinition] {
    Check(
      .k1, "sizes.refused-requests",
      "an invalid key at the end of a request of any size makes it throw invalidKey"
    ) { context in
      try await context.checkSizes { place, count in
        let request = place.keys.dropLast() + [key("")]
        let what = "of \(count) keys, the last of which is empty"
        try await expectError(.invalidKey, from: "read(keys:) \(what)") {
          try await place.engine.read(keys: Array(request))
        }
        try await expectError(.invalidKey, from: "readDataAndKeys(keys:) \(what)") {
          try await place.engine.readDataAndKeys(keys: Array(request))
        }
        try await expectError(.invalidKey, from: "keysExist(_:) \(what)") {
          try await place.engine.keysExist(Array(request))
        }
        try await expectError(.invalidKey, from: "readEntries(keys:) \(what)") {
          try await place.engine.readEntries(keys: Array(request))
        }
      }
    }
    Check(.k3, "sizes.all-keys", "allKeys() lists every key once, for any number of keys") { context in
      try await context.checkSizes { place, count in
        try expect(try await place.engine.allKeys(), areInAnyOrder: place.keys, "allKeys()")
      }
    }
    Check(.l2, "sizes.key-count", "keyCount() is right for any number of keys") { context in
      try await context.checkSizes { place, count in
        try expect(try await place.engine.keyCount(), is: count, "keyCount()")
      }
    }
    Check(
      .r2, "sizes.requests",
      "read(keys:) and readDataAndKeys(keys:) of any size return results in the order of the request, with "
        + "repeats and without absent keys"
    ) { context in
      try await context.checkSizes { place, count in
        for request in [place.keys, mixedRequest(count, in: place)] {
          try await expectAnswers(to: request, in: place)
        }
      }
      try await context.checkSizes({ $0.requests }, .fills) { place, count in
        if place.count == 0 { try await place.grow(to: 100) }
        let request = mixedRequest(count, in: place)
        try await expectAnswers(to: request, in: place)
        guard context.capabilities.contains(.transactions) else { return }
        let found = try await place.engine.withTransaction { try $0.read(keys: request) }
        if found == existing(of: request).map({ value(for: $0) }) { return }
        throw Violation(
          "read(keys:) of a body, of \(request.count) keys, returned other values than outside of it")
      }
      try await checkRequestsOfLongKeys(context)
    }
    Check(
      .l1, "sizes.keys-exist",
      "keysExist(_:) of any size returns the existing keys in the order of the request"
    ) { context in
      try await context.checkSizes { place, count in
        for request in [place.keys, mixedRequest(count, in: place)] {
          try await expectExisting(of: request, in: place)
        }
      }
      try await context.checkSizes({ $0.requests }, .fills) { place, count in
        if place.count == 0 { try await place.grow(to: 100) }
        try await expectExisting(of: mixedRequest(count, in: place), in: place)
      }
    }
    Check(
      .r3, "sizes.everything",
      "readAllData() and readAllDataAndKeys() return every entry once, for any number of entries"
    ) { context in
      try await context.checkSizes { place, count in
        let expected = place.sortedEntries
        let entries = try await place.engine.readAllDataAndKeys()
        try expect(entries.count, is: count, "the number of entries of readAllDataAndKeys()")
        try expect(entries.sorted { $0.key < $1.key }, are: expected, "readAllDataAndKeys(), sorted,")
        let values = try await place.engine.readAllData()
        try expect(values.count, is: count, "the number of values of readAllData()")
        // No two entries have equal values.
        try expect(
          Set(values) == Set(expected.map(\.data)), "readAllData() returned other values than those written")
      }
    }
    Check(
      .r6, "sizes.all-entries",
      "readAllEntries() returns every entry in the order of the first writes, for any number of entries"
    ) { context in
      let isExact = context.capabilities.contains(.atomicBatches)
      try await context.checkSizes { place, count in
        let found = try await place.engine.readAllEntries()
        try expect(found.count, is: count, "the number of entries of readAllEntries()")
        let entries = found.map { (key: $0.key, data: $0.data) }
        if isExact { return try expect(entries, are: place.entries, "readAllEntries()") }
        // An engine that implements a batch as single writes cannot distinguish writes within one tick of the clock.
        try expect(entries.sorted { $0.key < $1.key }, are: place.sortedEntries, "readAllEntries(), sorted,")
        try expectOrder(of: found, place.keys)
      }
    }
    Check(
      .r6, "sizes.entries-of-equal-time",
      "readAllEntries() returns all of very many entries of one batch, even if they have the same time"
    ) { context in
      let engine = try await context.open()
      let wanted = context.byLevel(quick: 12_000, standard: 60_000, exhaustive: 300_000)
      let keys = (0..<(try await context.affordableCount(wanted, of: "entries"))).map(GrowingPlace.key)
      for (name, write) in [wayOfBatches, wayOfImporting] {
        try await engine.removeAllData()
        try await write(engine, entries(keys))
        context.noteProgress()
        let found = try await engine.readAllEntries()
        try expect(found.count, is: keys.count, "the number of entries of readAllEntries() after \(name)")
        try expectOrder(of: found, keys, isExact: context.capabilities.contains(.atomicBatches))
      }
    }
    Check(
      .r6, "sizes.some-entries",
      "readEntries(keys:) of any number of keys returns the existing entries, each once, in the order of the "
        + "first writes"
    ) { context in
      try await context.checkSizes({ $0.ends }) { place, count in
        try await expectEntries(of: mixedRequest(count, in: place), in: place)
      }
      try await context.checkSizes({ $0.requests }, .fills) { place, count in
        if place.count == 0 { try await place.grow(to: 100) }
        try await expectEntries(of: mixedRequest(count, in: place), in: place)
      }
    }
    Check(
      .r5, "sizes.scans",
      "scan returns any number of entries in order, and with a limit of any size exactly that many"
    ) { context in
      try await context.checkSizes { place, count in
        let sorted = place.sortedEntries
        let middle = sorted[count / 2].key
        let scans: [(KeyRange, Int?, Range<Int>)] = [
          (.all, nil, 0..<count), (.all, count - 1, 0..<(count - 1)), (.all, count, 0..<count),
          (.prefix("key-"), count + 1, 0..<count),
          (KeyRange(after: middle, upTo: nil), nil, (count / 2 + 1)..<count),
          (KeyRange(after: nil, upTo: middle), nil, 0..<(count / 2 + 1)),
        ]
        for (range, limit, places) in count > 1_100 ? Array(scans.prefix(2) + scans.suffix(2)) : scans {
          let found = try await place.engine.scan(range, limit: limit)
          let what = describe(range, limit)
          try expect(found.count, is: places.count, "the number of entries of \(what)")
          try expect(found, are: Array(sorted[places]), what)
        }
      }
    }
  }
}

/// A request for this many keys of a place, in mixed order. Some are absent, some are repeated.
private func mixedRequest(_ count: Int, in place: GrowingPlace) -> [CacheKey] {
  let step = [7, 5, 11, 13].first { !count.isMultiple(of: $0) } ?? 1
  return (0..<count).map { position in
    let number = (count - 1 - position) * step % count
    if number % 5 == 3 { return GrowingPlace.absentKey(number) }
    return place.keys[(number % 7 == 2 ? number / 2 : number) % place.count]
  }
}

/// The keys of the request that exist, in the order of the request.
private func existing(of request: [CacheKey]) -> [CacheKey] {
  request.filter { !$0.value.hasSuffix("absent") }
}

private func expectAnswers(to request: [CacheKey], in place: GrowingPlace) async throws {
  let expected = entries(existing(of: request))
  let values = try await place.engine.read(keys: request)
  let what = "of \(request.count) keys, of which \(expected.count) exist,"
  try expect(values.count, is: expected.count, "the number of values of read(keys:) \(what)")
  try expect(values, is: expected.map(\.data), "read(keys:) \(what)")
  let pairs = try await place.engine.readDataAndKeys(keys: request)
  try expect(pairs.count, is: expected.count, "the number of entries of readDataAndKeys(keys:) \(what)")
  try expect(pairs, are: expected, "readDataAndKeys(keys:) \(what)")
}

private func expectEntries(of request: [CacheKey], in place: GrowingPlace) async throws {
  let asked = Set(request)
  let expected = place.keys.filter(asked.contains)
  let found = try await place.engine.readEntries(keys: request)
  let what = "readEntries(keys:) of \(request.count) keys, of which \(expected.count) different ones exist,"
  try expect(found.count, is: expected.count, "the number of entries of \(what)")
  let sorted = found.map { (key: $0.key, data: $0.data) }.sorted { $0.key < $1.key }
  try expect(sorted, are: entries(expected.inByteOrder()), "\(what) sorted,")
  try expectOrder(of: found, place.keys, in: "readEntries(keys:)")
}

private func expectExisting(of request: [CacheKey], in place: GrowingPlace) async throws {
  let expected = existing(of: request)
  let found = try await place.engine.keysExist(request)
  let what = "of \(request.count) keys, of which \(expected.count) exist,"
  try expect(found.count, is: expected.count, "the number of keys of keysExist(_:) \(what)")
  try expect(found, is: expected, "keysExist(_:) \(what)")
}

/// Fails unless the entries are in the order in which the keys were written.
///
/// - Parameter isExact: Whether entries with equal times must be in that order, too. An engine that implements a batch
///   as single writes cannot distinguish writes within one tick of the clock.
func expectOrder(
  of entries: [StorageEntry], _ order: [CacheKey], in method: String = "readAllEntries()",
  isExact: Bool = false
) throws {
  if isExact { return try expect(entries.map(\.key), is: order, "the keys of \(method)") }
  var rank: [CacheKey: Int] = [:]
  for (index, key) in order.enumerated() { rank[key] = index }
  for (earlier, later) in zip(entries, entries.dropFirst()) where earlier.createdAt != later.createdAt {
    try expect(
      rank[earlier.key, default: 0] < rank[later.key, default: 0],
      "\(method) returned \(earlier.key) before \(later.key), which was written first")
  }
}
