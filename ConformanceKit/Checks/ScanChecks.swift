#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Scans: rule R5.

extension CheckDefinition {
  @CheckList static var scanChecks: [CheckDefinition] {
    Check(.r5, "scan.in-byte-order", "scan returns every entry in ascending byte order of keys") { context in
      let engine = try await context.open()
      try await engine.write(entries(AdversarialKeys.all.reversed()))
      let sorted = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
      try expect(try await engine.scan(.all, limit: nil), are: sorted, "scan(.all)")
    }
    Check(.r5, "scan.prefix", "scan with a prefix returns the keys whose bytes start with it") { context in
      let engine = try await context.open()
      try await checkRanges(in: engine) { keys in
        [
          "", "a", "ab", "abc", "b", "z", "é", "e", "\u{C3}", "日", "🗄", "a\0", " ", "p/", "\u{10FFFF}",
          "abcdefgh",
        ]
        .map { KeyRange.prefix($0) } + keys.map { KeyRange.prefix($0.value) }
      }
    }
    Check(.r5, "scan.after", "scan after a key excludes that key, whether or not it exists") { context in
      let engine = try await context.open()
      try await checkRanges(in: engine) { keys in
        (keys + [key("aa"), key("\0"), key("zzz"), key("abc\0"), key("\u{10FFFF}\u{10FFFF}")])
          .map { KeyRange(after: $0, upTo: nil) }
      }
    }
    Check(.r5, "scan.up-to", "scan up to a key includes that key, whether or not it exists") { context in
      let engine = try await context.open()
      try await checkRanges(in: engine) { keys in
        (keys + [key("aa"), key("\0"), key("zzz"), key("abc\0")]).map { KeyRange(after: nil, upTo: $0) }
      }
    }
    Check(
      .r5, "scan.combined",
      "prefix, after and upTo can be combined, and contradictory bounds return nothing"
    ) {
      context in
      let engine = try await context.open()
      try await checkRanges(in: engine) { keys in
        var ranges: [KeyRange] = []
        for prefix in ["a", "ab", "b", "é"] {
          for bound in keys {
            var range = KeyRange.prefix(prefix)
            range.after = bound
            ranges.append(range)
            range.upTo = keys[keys.count / 2]
            ranges.append(range)
            range.after = nil
            range.upTo = bound
            ranges.append(range)
          }
        }
        return ranges + [
          KeyRange(after: key("b"), upTo: key("a")), KeyRange(after: key("a"), upTo: key("a")),
        ]
      }
    }
    Check(.r5, "scan.limit", "scan with a limit returns at most that many entries, the first ones") {
      context in
      let engine = try await context.open()
      let sorted = keys(30)
      try await engine.write(entries(sorted.reversed()))
      for limit in [-1, 0, 1, 2, 29, 30, 31, Int.max] + limitsOfIntegers {
        let found = try await engine.scan(.all, limit: limit)
        try expect(found, are: entries(Array(sorted.prefix(max(0, limit)))), "scan(.all, limit: \(limit))")
      }
    }
    Check(.r5, "scan.pages", "the pages of a scan return every entry once and in order") {
      context in
      let engine = try await context.open()
      let users = keys(95, prefix: "user/")
      try await engine.write(entries(users + keys(10, prefix: "uses/") + keys(10, prefix: "use")))
      var range = KeyRange.prefix("user/")
      var found: [(key: CacheKey, data: Data)] = []
      while true {
        let page = try await engine.scan(range, limit: 10)
        found += page
        guard page.count == 10, let last = page.last, found.count < 200 else { break }
        range.after = last.key
      }
      try expect(found, are: entries(users), "ten at a time, scan")
    }
    Check(.r5, "scan.after-changes", "scan shows overwrites, removals and new keys") { context in
      let engine = try await context.open()
      let keys = keys(9)
      try await engine.write(entries(keys.filter { $0 != keys[4] }))
      _ = try await engine.scan(.all, limit: nil)
      try await engine.write(entries([keys[4]]))
      try await engine.write(value(for: keys[2], version: 2), key: keys[2])
      try await engine.remove(key: keys[7])
      let expected = keys.filter { $0 != keys[7] }.map {
        (key: $0, data: value(for: $0, version: $0 == keys[2] ? 2 : 1))
      }
      try expect(try await engine.scan(.all, limit: nil), are: expected, "scan(.all)")
    }
    Check(
      .r5, "scan.costs-what-it-returns",
      "a scan that returns one of 200 entries of 128 KiB, by a limit, two keys or a prefix, costs less than "
        + "half of a scan of all, at the start, in the middle and at the end", needs: .orderedScans
    ) { context in
      try await checkCost(in: try await context.open())
    }
  }
}

/// Compares the scan of each range with the result of `KeyRange.contains(_:)`.
private func checkRanges(in engine: EngineUnderTest, _ ranges: ([CacheKey]) -> [KeyRange]) async throws {
  let keys = [
    "a", "ab", "abc", "abcd", "abd", "a\0", "a\u{1}", "a ", "aÿ", "A", "b", "ba", "é", "e\u{301}", "éa", "日",
    "日本",
    "🗄", "🗄🗄", "\u{FFFF}", "\u{10FFFF}", " ", "p/a", "p/b", "p0", "~",
  ].map(CacheKey.init(verbatim:))
  try await engine.write(entries(keys))
  // Rules K2 and K3 cover whether all keys are there.
  let sorted = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
  for range in ranges(sorted.map(\.key)) {
    for limit in [nil, 2] {
      let inside = sorted.filter { range.contains($0.key) }
      let expected = limit.map { Array(inside.prefix($0)) } ?? inside
      try expect(try await engine.scan(range, limit: limit), are: expected, describe(range, limit))
    }
  }
}

/// Limits that become zero, negative or small when truncated to 16 or 32 bits.
let limitsOfIntegers: [Int] = [65_536, 1 << 31, 1 << 32, (1 << 32) + 2]

/// A description of a scan for failure texts.
func describe(_ range: KeyRange, _ limit: Int?) -> String {
  let parts = [
    range.prefix.map { "prefix: \(shortened($0.debugDescription))" }, range.after.map { "after: \($0)" },
    range.upTo.map { "upTo: \($0)" }, limit.map { "limit: \($0)" },
  ]
  return "scan(\(parts.compactMap { $0 }.joined(separator: ", ")))"
}

/// Compares the fastest of several scans of one entry with the fastest of several scans of all: the fastest, because
/// the machine may be busy at any time. Values are large, since the rule is about loading them: an engine may go
/// through all keys. The fixed cost of a call, for example to a remote server, is subtracted on both sides.
private func checkCost(in engine: EngineUnderTest) async throws {
  let keys = keys(200)
  func best(of times: Int, _ call: () async throws -> Void) async throws -> Duration {
    var best = Duration.seconds(1_000)
    for _ in 0..<times { best = min(best, try await ContinuousClock().measure { try await call() }) }
    return best
  }
  let empty = try await best(of: 20) { _ = try await engine.scan(.all, limit: nil) }
  try await engine.write(keys.map { ($0, noise(128 << 10)) })
  let all = try await best(of: 5) { _ = try await engine.scan(.all, limit: nil) }
  for start in [0, 100, 198] {
    let ranges: [(what: String, range: KeyRange, limit: Int?)] = [
      ("with a limit", KeyRange(after: keys[start], upTo: nil), 1),
      ("between two keys", KeyRange(after: keys[start], upTo: keys[start + 1]), nil),
      ("with a prefix", .prefix(keys[start].value), nil),
    ]
    for (what, range, limit) in ranges {
      var one = Duration.seconds(1_000)
      // Repeats as often as a busy machine requires. An engine that loads everything is never fast enough.
      for _ in 0..<10 where one * 2 >= all {
        one = min(one, try await best(of: 20) { _ = try await engine.scan(range, limit: limit) })
      }
      if one * 2 < all { continue }
      let any = max(empty, try await best(of: 20) { _ = try await engine.keyExists(keys[start]) })
      guard any * 4 <= all else {
        throw Skip(reason: "Calls are so slow that the cost of loading entries cannot be measured.")
      }
      try expect(
        (one - any) * 2 < all - any,
        "at position \(start) of 200, a scan \(what) of one entry took \(one.inSeconds * 1e6) µs, and a scan "
          + "of all \(all.inSeconds * 1e6) µs")
    }
  }
}
