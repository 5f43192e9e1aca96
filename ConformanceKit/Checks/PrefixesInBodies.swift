import StockroomCore

// Scans in bodies, which an engine may implement in another way than scans outside of bodies: rule T2.

/// Scans prefixes that look like patterns, and the edges of prefixes, in a body that has written every second key.
func checkScansOfPrefixes(_ engine: EngineUnderTest, _ context: CheckContext) async throws {
  let prefixes = ["%", "_", "a%b", "a_b", "A", "a", "*", "?", "[ab]", "\\", "p", "p\u{FFFF}", "e", "\u{E9}"]
  let endings = ["", "\0", "b", "B", "\u{80}", "\u{FFFF}", "\u{10FFFF}"]
  // Keys that match a pattern, that follow a prefix in byte order, or that have the same characters.
  let others = ["aXb", "abc", "ac", "b", "p\u{10000}z", "q", "e\u{301}", "\u{E8}"]
  // As keys: unlike strings, keys with different bytes are different.
  let names = prefixes.flatMap { prefix in endings.map { prefix + $0 } } + others
  let all = Set(names.map(CacheKey.init(verbatim:))).inByteOrder()
  let written = all.indices.filter { $0 % 2 == 1 }.map { all[$0] }
  try await engine.write(entries(all.indices.filter { $0 % 2 == 0 }.map { all[$0] }))
  try await engine.withTransaction { transaction in
    for key in written { try transaction.write(value(for: key), key: key) }
    for prefix in prefixes {
      context.noteProgress()
      let inside = all.filter { KeyRange.prefix(prefix).contains($0) }
      for bounds in 0..<3 {
        var range = KeyRange.prefix(prefix)
        if bounds == 1 { range.after = inside[inside.count / 3] }
        if bounds == 2 { range.upTo = inside[inside.count * 2 / 3] }
        let expected = entries(all.filter { range.contains($0) })
        for limit in [nil, 2] {
          try expect(
            try transaction.scan(range, limit: limit), are: Array(expected.prefix(limit ?? .max)),
            "in a body that has written some of the keys, \(describe(range, limit))")
        }
      }
    }
  }
}
