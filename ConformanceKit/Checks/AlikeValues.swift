#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Equal values, and values that differ in few bytes.

/// Writes large, similar values in every way. An engine might confuse them or store them only once.
func checkAlikeValues(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (a, b) = (key("a"), key("b"))
  let largest = context.byLevel(quick: 70_000, standard: 1_200_000, exhaustive: 5_000_000)
  for size in [100, 5_000, 40_000, largest] {
    for way in ChangeMethod.writing(context.capabilities).map(\.way) + [wayOfReplacing] {
      let what = "with values of \(size) bytes that \(way.name) wrote, "
      let first = noise(size, seed: 7)
      var second = first
      second[size / 2] ^= 0xFF
      func expect(_ values: [(CacheKey, Data?)], _ when: String) async throws {
        for (key, value) in values {
          let found = try await engine.read(key: key)
          try ConformanceKit.expect(
            found == value,
            "\(what)read(key:) of \(key) returned \(describe(found as Any)) instead of \(describe(value as Any)) \(when)"
          )
        }
      }
      context.noteProgress()
      try await way.write(engine, [(a, first)])
      try await way.write(engine, [(a, first)])
      try await expect([(a, first)], "when it had been written again as it was")
      try await way.write(engine, [(a, second)])
      try await expect([(a, second)], "when a byte in the middle had changed")
      context.noteProgress()
      try await way.write(engine, [(b, second)])
      try await engine.remove(key: a)
      try await expect([(a, nil), (b, second)], "when the same value under another key had been removed")
      try await way.write(engine, [(a, second), (b, first)])
      try await expect([(a, second), (b, first)], "when one of two equal values had been overwritten")
      try await way.write(engine, [(a, first), (b, first)])
      try await engine.remove(key: a)
      try await expect([(a, nil), (b, first)], "when one of two equal values of one call had been removed")
      try await engine.remove(keys: [a, b])
    }
  }
  if context.capabilities.contains(.persistent) { try await checkAlikeValuesReopened(context) }
}

/// Removes one of three equal values and overwrites another after reopening, because an engine may not store how many
/// entries share a value.
private func checkAlikeValuesReopened(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "alike", directoryHint: .isDirectory)
  let (keys, value) = (keys(3), noise(40_000, seed: 8))
  var engine = try await context.open(place)
  try await engine.write(keys.map { ($0, value) })
  engine = try await context.reopen(engine, at: place)
  try await engine.remove(key: keys[0])
  try await engine.write(data("other"), key: keys[1])
  for when in ["", " and reopening"] {
    if !when.isEmpty { engine = try await context.reopen(engine, at: place) }
    try ConformanceKit.expect(
      try await engine.read(key: keys[2]) == value,
      "with three equal values, read(key:) of one returned another value after reopening, a removal and an overwrite of the others\(when)"
    )
  }
}
