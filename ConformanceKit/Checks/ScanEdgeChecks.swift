#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Scans that engines are known to get wrong: rule R5.

extension CheckDefinition {
  @CheckList static var scanEdgeChecks: [CheckDefinition] {
    Check(
      .r5, "scan.prefix-is-no-pattern", "a prefix is compared as bytes, not as a pattern, and with case"
    ) {
      context in
      let engine = try await context.open()
      let names = [
        "%", "%a", "_", "_a", "a%b", "a_b", "aXb", "ab", "A%", "*", "*a", "?", "?a", "[ab]c", "ac", "[", "\\",
        "\\%", "^a",
        "a.c", "abc", "a'b", "a\"b", "(a", "+", "$",
      ]
      try await expectScans(
        of: names.map(CacheKey.init(verbatim:)),
        (names + ["a", "A"]).map { Bounds(prefix: $0) },
        limits: [nil], in: engine)
    }
    Check(
      .r5, "scan.edge-of-a-prefix",
      "scan with a prefix returns every key that starts with it, whatever follows, and no key just after "
        + "that range"
    ) { context in
      let engine = try await context.open()
      let prefixes = [
        "p", "p\u{7F}", "p\u{7FF}", "p\u{D7FF}", "p\u{FFFF}", "p\u{10FFFF}", "\u{10FFFF}",
        "\u{10FFFF}\u{10FFFF}",
        // Equal, or prefixes of one another, only when compared as characters.
        "e", "\u{E9}", "a\u{308}", "\u{1F469}",
      ]
      let endings = [
        "", "\0", "\u{7F}", "\u{80}", "\u{FFFF}", "\u{10000}", "\u{10FFFF}", "\u{10FFFF}\u{10FFFF}z", "z",
      ]
      let behind = [
        "e\u{301}a", "\u{E9}b", "e\u{301}", "\u{E4}", "a\u{308}\u{304}", "\u{1F469}\u{200D}\u{1F680}", "q",
        "p\u{80}", "p\u{800}", "p\u{E000}", "p\u{10000}", "o\u{10FFFF}",
      ]
      // As keys: unlike strings, keys with different bytes are different.
      let names = (prefixes.flatMap { prefix in endings.map { prefix + $0 } } + behind)
        .map(CacheKey.init(verbatim:))
      try await expectScans(
        of: Array(Set(names)), prefixes.map { Bounds(prefix: $0) }, limits: [nil, 3],
        in: engine
      )
    }
    Check(
      .r5, "scan.long-bounds",
      "prefixes and bounds of hundreds of bytes are compared up to their last byte"
    ) {
      context in
      let engine = try await context.open()
      let long = String(repeating: "l", count: 400)
      let longest = String(repeating: "l", count: 510)
      let names = [
        "l", String(long.dropLast()), long, long + "a", long + "b", long + "ba", long + "c", longest,
        longest + "a", longest + "z",
        String(repeating: "l", count: 255), String(repeating: "l", count: 256),
        String(repeating: "l", count: 257) + "x",
      ]
      var ranges = (names + [longest + "abc", String(repeating: "l", count: 600)]).map { Bounds(prefix: $0) }
      for name in names {
        ranges += [
          Bounds(after: name), Bounds(upTo: name), Bounds(prefix: long, after: name, upTo: long + "b"),
        ]
      }
      try await expectScans(of: names.map(CacheKey.init(verbatim:)), ranges, limits: [nil], in: engine)
    }
    Check(
      .r5, "scan.limits-in-ranges",
      "scan with a limit returns the first entries of the range: none for zero or less, all if there are "
        + "fewer"
    ) { context in
      let engine = try await context.open()
      let names = (0..<24).map { "\(["a", "b", "c"][$0 % 3])/\($0 + 10)" }
      let ranges = [
        Bounds(), Bounds(prefix: "b/"), Bounds(after: "b/11"), Bounds(upTo: "b/20"),
        Bounds(prefix: "b/", after: "b/14"), Bounds(prefix: "b/", upTo: "b/20"),
        Bounds(after: "a/99", upTo: "c/13"),
        Bounds(prefix: "b/", after: "b/14", upTo: "b/26"), Bounds(prefix: "b/", after: "a", upTo: "c"),
        Bounds(prefix: "b/", after: "c"), Bounds(prefix: "b/", upTo: "a"), Bounds(after: "b", upTo: "b"),
        Bounds(prefix: "z"),
      ]
      let limits: [Int?] = [nil, .min, -1, 0, 1, 2, 7, 8, 9, .max]
      try await expectScans(
        of: names.map(CacheKey.init(verbatim:)), ranges, limits: limits + (limitsOfIntegers as [Int?]),
        in: engine)
    }
    Check(
      .r5, "scan.among-thousands",
      "a scan of a few among thousands of keys returns those few, at any position"
    ) {
      context in
      let engine = try await context.open()
      let count = try await context.affordableCount(2_500, of: "keys")
      let keys = keys(count)
      try await engine.write(entries(keys))
      for start in [0, 1, 99, 255, 256, 1_023, 1_999, 2_000, count - 10, count - 2] where start < count {
        context.noteProgress()
        let expected = entries(Array(keys[(start + 1)...].prefix(20)))
        let found = try await engine.scan(KeyRange(after: keys[start], upTo: nil), limit: 20)
        try expect(found, are: expected, "scan(after: \(keys[start]), limit: 20)")
        let range = KeyRange(after: keys[start], upTo: expected.last?.key)
        try expect(try await engine.scan(range, limit: nil), are: expected, "scan(after:upTo:) of 20 keys")
      }
      // The last ten keys, and a hundred keys far from the first.
      let prefixes = [
        String(keys[count - 1].value.dropLast()), String(keys[count * 4 / 5].value.dropLast(2)),
      ]
      for prefix in prefixes {
        let range = KeyRange.prefix(prefix)
        let expected = entries(keys.filter { range.contains($0) })
        for limit in [nil, 5] {
          let found = try await engine.scan(range, limit: limit)
          try expect(found, are: Array(expected.prefix(limit ?? .max)), describe(range, limit))
        }
      }
      context.noteProgress()
      let all = try await engine.scan(.all, limit: nil)
      try expect(all, are: entries(keys), "scan(.all) of \(count) entries")
      let gone = Array(keys.prefix(count * 19 / 20))
      context.noteProgress()
      try await engine.remove(keys: gone)
      context.noteProgress()
      let left = entries(Array(keys.dropFirst(gone.count)))
      for limit in [nil, 1, 10] {
        try expect(
          try await engine.scan(.all, limit: limit), are: Array(left.prefix(limit ?? .max)),
          "\(describe(.all, limit)) after the removal of the first \(gone.count) of \(count) entries")
      }
    }
  }
}

/// A range in short notation.
private struct Bounds {
  var prefix: String?
  var after: String?
  var upTo: String?

  var range: KeyRange {
    var range = KeyRange(after: after.map { key($0) }, upTo: upTo.map { key($0) })
    range.prefix = prefix
    return range
  }
}

/// Writes the keys, and compares each scan with the result expected from the bytes of the keys.
private func expectScans(
  of keys: [CacheKey], _ ranges: [Bounds], limits: [Int?], in engine: EngineUnderTest
) async throws {
  try await engine.write(entries(keys))
  // Rules K2 and K3 cover whether all keys are there.
  let sorted = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
  let scans = ranges.flatMap { bounds in limits.map { (range: bounds.range, limit: $0) } }
  for (range, limit) in scans {
    try expect(
      try await engine.scan(range, limit: limit), are: inside(range, limit, of: sorted),
      describe(range, limit))
  }
  if engine.capabilities.contains(.transactions) {
    try await expectScansInBody(scans, of: sorted, in: engine)
  }
}

/// The entries of the range up to the limit.
private func inside(
  _ range: KeyRange, _ limit: Int?, of sorted: [(key: CacheKey, data: Data)]
) -> [(key: CacheKey, data: Data)] {
  Array(sorted.lazy.filter { range.contains($0.key) }.prefix(max(0, limit ?? .max)))
}

/// Scans in a body, first the unchanged entries and then with the body's own writes and removals among them. Rolls the
/// body back.
private func expectScansInBody(
  _ scans: [(range: KeyRange, limit: Int?)], of stored: [(key: CacheKey, data: Data)],
  in engine: EngineUnderTest
) async throws {
  do {
    try await engine.withTransaction { transaction in
      func scan(_ range: KeyRange, _ limit: Int?) throws -> [(key: CacheKey, data: Data)] {
        do {
          return try transaction.scan(range, limit: limit)
        } catch let error as StorageError where error.code != .conflict {
          throw Violation("in a transaction \(describe(range, limit)) threw \(error)", rule: .t2)
        }
      }
      func scanAll(_ sorted: [(key: CacheKey, data: Data)], _ what: String) throws {
        for (range, limit) in scans {
          do {
            try expect(
              try scan(range, limit), are: inside(range, limit, of: sorted),
              "in a transaction \(what) \(describe(range, limit))")
          } catch let violation as Violation {
            throw Violation(violation.description, rule: .t2)
          }
        }
      }
      try scanAll(stored, "that has only read,")
      var sorted: [(key: CacheKey, data: Data)] = []
      for (number, entry) in stored.enumerated() {
        switch number % 3 {
        case 0: sorted.append(entry)
        case 1:
          try transaction.write(data("new"), key: entry.key)
          sorted.append((entry.key, data("new")))
        default: try transaction.remove(key: entry.key)
        }
      }
      try scanAll(sorted, "with changes of its own,")
      throw ThrownByBody()
    }
  } catch let failure as CallFailure where failure.error is ThrownByBody {}
}
