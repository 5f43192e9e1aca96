#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Keys: rules K1 to K4.

extension CheckDefinition {
  @CheckList static var keyChecks: [CheckDefinition] {
    refusal(of: key(""), called: "the-empty-key", "an empty key")
    refusal(of: key(String(repeating: "k", count: 512)), called: "512-bytes", "a key of 512 bytes")
    refusal(
      of: key(String(repeating: "🗄", count: 128)), called: "512-bytes-of-emoji",
      "a key of 128 emoji, which are 512 bytes,")
    refusal(
      of: key(String(repeating: "k", count: 510) + "é"), called: "512-bytes-with-an-accent",
      "a key of 510 letters and one accent, which are 511 characters and 512 bytes,")
    refusal(of: key(String(repeating: "k", count: 100_000)), called: "100000-bytes", "a key of 100,000 bytes")

    Check(.k1, "keys.511-bytes-are-accepted", "every method accepts a key of 511 bytes") { context in
      let engine = try await context.open()
      for key in [key(String(repeating: "k", count: 511)), AdversarialKeys.longestEmoji] {
        try await engine.write(data("one"), key: key)
        try expect(try await engine.read(key: key), is: data("one"), "read(key:) of 511 bytes")
        for (_, call) in callsThatTakeAKey(context.capabilities) {
          // Rule D1 covers that an absent key can be removed.
          try await engine.write(data("one"), key: key)
          try await call(engine, key)
        }
      }
    }

    for family in AdversarialKeys.families + [AdversarialKeys.lineEnds] {
      Check(.k2, "keys.\(family.name)", family.expectation) { context in
        try await checkDistinct(family.keys, in: try await context.open())
      }
    }
    Check(.k2, "keys.in-batches", "keys are distinguished byte for byte in reads and writes of many") {
      context in
      let engine = try await context.open()
      try await engine.write(entries(AdversarialKeys.all))
      for key in AdversarialKeys.all {
        context.noteProgress()
        let found = try await engine.readDataAndKeys(keys: [key])
        try expect(found, are: entries([key]), "readDataAndKeys(keys:) of \(key)")
      }
      let half = AdversarialKeys.all.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
      let others = AdversarialKeys.all.filter { !half.contains($0) }
      try await engine.remove(keys: half)
      try await expectStored(entries(others), absent: half, in: engine)
      // All keys in one batch, each together with those from which it must be distinguished.
      let all = AdversarialKeys.all
      for (version, way) in [wayOfApplying, wayOfImporting].enumerated() {
        try await way.write(engine, entries(all, version: version + 2))
        try expect(
          try await engine.readDataAndKeys(keys: all), are: entries(all, version: version + 2),
          "after \(way.name) of \(all.count) keys readDataAndKeys(keys:)")
        context.noteProgress()
      }
      try await engine.remove(keys: all)
      try expect(
        try await engine.readDataAndKeys(keys: all), are: [],
        "readDataAndKeys(keys:) after remove(keys:) of all")
    }

    Check(.k3, "keys.are-listed-as-written", "allKeys() lists every kind of key as it was written") {
      context in
      let engine = try await context.open()
      for key in AdversarialKeys.all { try await engine.write(value(for: key), key: key) }
      try expect(try await engine.allKeys(), areInAnyOrder: AdversarialKeys.all, "allKeys()")
      try await checkMadeKeys(engine)
      try await checkMadeKeysInEveryCall(engine)
    }
    Check(.k3, "keys.are-listed-once", "allKeys() lists a key once, no matter how often it was written") {
      context in
      let engine = try await context.open()
      for version in 1...3 {
        try await engine.write(value(for: key("k"), version: version), key: key("k"))
        try await engine.write(entries([key("l"), key("k"), key("l")], version: version))
      }
      try expect(try await engine.allKeys(), areInAnyOrder: [key("k"), key("l")], "allKeys()")
    }
    Check(.k3, "keys.removed-are-not-listed", "allKeys() lists no removed key") { context in
      let engine = try await context.open()
      try await engine.write(entries([key("a"), key("b"), key("c")]))
      try await engine.remove(key: key("b"))
      try expect(try await engine.allKeys(), areInAnyOrder: [key("a"), key("c")], "allKeys()")
      try await engine.remove(keys: [key("a"), key("c")])
      try expect(try await engine.allKeys(), is: [], "allKeys() of an engine without entries")
    }

    Check(.k4, "keys.reach-nothing-outside", "no key reads, writes or removes anything outside the directory")
    {
      try await checkConfinement($0)
    }
  }

  /// A check that every method refuses the key and leaves the stored entries unchanged.
  private static func refusal(of bad: CacheKey, called name: String, _ what: String) -> CheckDefinition {
    Check(
      .k1, "keys.\(name)-is-refused", "\(what) makes every method throw invalidKey, and nothing is written"
    ) {
      context in
      let engine = try await context.open()
      for (name, call) in callsThatTakeAKey(context.capabilities) {
        try await expectError(.invalidKey, from: "\(name) of an empty engine") {
          try await call(engine, bad)
        }
      }
      try await engine.write(data("kept"), key: key("kept"))
      for (name, call) in callsThatTakeAKey(context.capabilities) {
        try await expectError(.invalidKey, from: name) { try await call(engine, bad) }
      }
      try expect(try await engine.keyCount(), is: 1, "keyCount() after the refusals")
      try await expectStored([(key("kept"), data("kept"))], in: engine)
    }
  }
}

typealias CallOfKey = (name: String, call: @Sendable (EngineUnderTest, CacheKey) async throws -> Void)

/// Every method that takes a key, for an engine with these capabilities: with the key alone, and after a
/// valid one.
func callsThatTakeAKey(_ capabilities: EngineCapabilities) -> [CallOfKey] {
  var calls: [CallOfKey] = []
  for method in ChangeMethod.all(capabilities) where method != .removeAll {
    calls.append((method.call, { try await method.perform([($1, data("v"))], in: $0) }))
    if method.isOfOneKey { continue }
    calls.append(
      (
        "\(method.call) behind another",
        { try await method.perform([(key("kept"), data("v")), ($1, data("v"))], in: $0) }
      ))
  }
  calls.append(("apply(_:) of a removal", { try await $0.apply([.remove(key: $1)]) }))
  for method in ReadMethod.allCases where method.isOfOneKey || method.isOfManyKeys {
    calls.append((method.call, { _ = try await method.found(of: [$1], in: $0) }))
    if method.isOfOneKey { continue }
    calls.append(
      ("\(method.call) behind another", { _ = try await method.found(of: [key("kept"), $1], in: $0) }))
  }
  for (what, range, limit) in rangesOfKeys {
    calls.append(("scan(_:limit:) \(what)", { _ = try await $0.scan(range($1), limit: limit) }))
  }
  return calls
}

private let rangesOfKeys: [(what: String, range: @Sendable (CacheKey) -> KeyRange, limit: Int?)] = [
  ("with such an after", { KeyRange(after: $0, upTo: nil) }, nil),
  ("with such an upTo", { KeyRange(after: nil, upTo: $0) }, 1),
  ("with such a bound before another", { KeyRange(after: $0, upTo: key("kept")) }, nil),
  ("with such a bound behind another", { KeyRange(after: key("z"), upTo: $0) }, nil),
  ("of no entries", { KeyRange(after: $0, upTo: nil) }, 0),
]

/// Each key has a value of its own, and removing one leaves the others.
private func checkDistinct(_ keys: [CacheKey], in engine: EngineUnderTest) async throws {
  for key in keys {
    try expect(try await engine.read(key: key), is: nil, "read(key:) of \(key), which was never written,")
    try await engine.write(value(for: key), key: key)
  }
  for key in keys {
    try expect(try await engine.read(key: key), is: value(for: key), "read(key:) of \(key)")
  }
  for (index, key) in keys.enumerated() {
    try await engine.remove(key: key)
    try expect(try await engine.read(key: key), is: nil, "read(key:) of \(key), which was removed,")
    guard index + 1 < keys.count else { break }
    let next = keys[index + 1]
    try expect(
      try await engine.read(key: next), is: value(for: next),
      "read(key:) of \(next) after the removal of \(key)")
  }
}

/// Creates files around the engine's directory, uses keys that look like paths to them, and checks that the files are
/// unchanged.
private func checkConfinement(_ context: CheckContext) async throws {
  let outer = context.root.appending(path: "outer", directoryHint: .isDirectory)
  let place = outer.appending(path: "a/b/place", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
  let outside = ["guard", "a/guard", "a/b/guard", "a/b/neighbor/guard", "a/b/place-guard"]
  for name in outside {
    let file = outer.appending(path: name)
    try FileManager.default.createDirectory(
      at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try data("guard").write(to: file)
  }
  let before = try DirectoryContents(of: outer, without: place)

  let engine = try await context.open(place)
  let outward = [
    "..", "../guard", "../new", "../../guard", "../../new", "../../../guard", "../../../new",
    "../neighbor/guard", "../neighbor/new", "x/../../guard", "./../guard", "..\\guard", "%2E%2E%2Fguard",
    "../guard\0", "..//guard", outer.systemPath + "guard", outer.systemPath + "new",
    "file://" + outer.systemPath + "guard",
  ]
  for key in outward.map(CacheKey.init(verbatim:)) {
    let found = try await engine.read(key: key)
    try expect(
      found != data("guard"),
      "read(key:) of \(key) returned the contents of a file outside the directory")
    // Rule D1 covers that this does not throw; here it only must not reach the file.
    try? await engine.remove(key: key)
    try await engine.write(value(for: key), key: key)
  }
  try expectUnchanged(before, in: outer, without: place, after: "writing keys that look like paths")
  try await engine.remove(keys: outward.prefix(8).map(CacheKey.init(verbatim:)))
  try await engine.removeAllData()
  try expectUnchanged(before, in: outer, without: place, after: "removing keys that look like paths")
}

/// Uses a key that `CacheKey.init(_:)` has made from a text, the key whose value is this text, and a key with the value
/// of the made key, as allKeys() returns it. The text that a key was made from must not distinguish it from an equal
/// key.
private func checkMadeKeys(_ engine: EngineUnderTest) async throws {
  let made = CacheKey("a text")
  let (plain, same) = (key("a text"), key(made.value))
  func expect(_ values: [(key: CacheKey, data: Data?)], _ when: String) async throws {
    for _ in 0..<2 {
      for (key, data) in values {
        try ConformanceKit.expect(
          try await engine.read(key: key), is: data, "read(key:) of \(key), made of \(key.rawValue), \(when)")
      }
    }
  }
  try await engine.write(data("1"), key: made)
  try await expect(
    [(made, data("1")), (plain, nil), (same, data("1"))], "when the made key had been written")
  try await engine.write(data("2"), key: same)
  try await expect([(made, data("2")), (plain, nil)], "when the key had been written by its value")
  try await engine.write(data("3"), key: plain)
  try await engine.remove(key: same)
  try await expect([(made, nil), (plain, data("3"))], "when the key had been removed by its value")
}

/// Passes a made key to every method: some of them may use the text that it was made from. The text precedes its value
/// in byte order.
private func checkMadeKeysInEveryCall(_ engine: EngineUnderTest) async throws {
  let made = CacheKey("! a text")
  let (plain, same, stored) = (key("! a text"), key(made.value), data("stored"))
  for method in ChangeMethod.writing(engine.capabilities) {
    try await engine.removeAllData()
    try await method.perform([(made, stored)], in: engine)
    try expect(
      try await engine.read(key: same), is: stored,
      "read(key:) of the value of a key that was made from a text, after \(method.call) of it")
    try expect(
      try await engine.read(key: plain), is: nil,
      "read(key:) of the text that a key was made from, after \(method.call) of it,")
  }
  func fail(_ what: String, _ rule: ContractRule) -> Violation {
    Violation("\(what) used the text that a key was made from instead of its value", rule: rule)
  }
  for method in ReadMethod.allCases {
    let found = try await method.found(of: [made], in: engine)
    guard found == [method.givesValues ? stored : nil] else { throw fail(method.call, method.rule) }
  }
  for (range, count) in [(KeyRange(after: made, upTo: nil), 0), (KeyRange(after: nil, upTo: made), 1)] {
    guard try await engine.scan(range, limit: nil).count == count else {
      throw fail("scan(_:limit:)", .r5)
    }
    guard engine.capabilities.contains(.transactions) else { continue }
    let isFound = try await engine.withTransaction { transaction in
      try transaction.read(key: made) == stored && transaction.read(keys: [made]) == [stored]
        && transaction.keyExists(made) && transaction.scan(range, limit: nil).count == count
    }
    guard isFound else { throw fail("a read of a body", .t2) }
  }
  for (name, remove) in waysOfRemoving(engine.capabilities) {
    try await engine.write(stored, key: same)
    try await remove(engine, [made])
    try expect(
      try await engine.read(key: same), is: nil,
      "read(key:) of the value of a key that was made from a text, after \(name) of it")
  }
}
