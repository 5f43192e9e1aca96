#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Edge cases of keys, alone, in requests for many, and in lists: rules K1 to K4.

extension CheckDefinition {
  @CheckList static var keyEdgeChecks: [CheckDefinition] {
    Check(.k1, "keys.of-every-length", "keys of every length from 1 to 511 bytes work") {
      context in
      let engine = try await context.open()
      let keys = (1...511).map { key(String(repeating: "k", count: $0)) } + AdversarialKeys.atTheEdge
      try await engine.write(entries(keys))
      // Rule K2 covers whether a key is distinguished from others.
      for key in keys {
        try expect(
          try await engine.read(key: key) != nil, "read(key:) of \(key.value.utf8.count) bytes returned nil")
      }
    }
    Check(
      .k1, "keys.long-escapes",
      "keys of up to 255 bytes work whose characters an engine may have to escape, and differ in the last one"
    ) { try await checkLongEscapes($0) }
    Check(
      .k1, "keys.refused-in-requests",
      "one invalid key anywhere in a request for many keys makes it throw invalidKey"
    ) { context in
      let engine = try await context.open()
      let valid = keys(100)
      try await engine.write(entries(Array(valid.prefix(50))))
      for bad in [key(""), key(String(repeating: "k", count: 512))] {
        for place in [0, 1, 50, 100] {
          let request = valid.prefix(place) + [bad] + valid.dropFirst(place)
          try await expectRefusal(of: Array(request), at: place, in: engine)
        }
        try await expectRefusal(of: [bad, bad], at: 0, in: engine)
      }
    }

    Check(.k2, "keys.in-every-question", "every read of a key is about exactly that key, byte for byte") {
      context in
      try await checkQuestions(context)
    }
    Check(
      .k2, "keys.thousands-with-a-long-prefix",
      "two thousand keys with the same first 400 bytes are different keys"
    ) { context in
      let engine = try await context.open()
      let count = try await context.affordableCount(2_000, of: "keys")
      let keys = keys(count, prefix: String(repeating: "p", count: 400))
      try await engine.write(entries(keys))
      try await expectStored(entries(keys), in: engine)
      context.noteProgress()
      let (kept, removed) = (Array(keys.prefix(count / 2)), Array(keys.dropFirst(count / 2)))
      try await engine.remove(keys: removed)
      context.noteProgress()
      try await expectStored(entries(kept), absent: removed, in: engine)
    }

    Check(
      .k3, "keys.in-every-list",
      "every method that returns keys returns them as they were written, byte for byte"
    ) { context in
      let engine = try await context.open()
      let all = AdversarialKeys.all
      try await engine.write(entries(all))
      let lists: [(String, () async throws -> [CacheKey])] = [
        ("readAllDataAndKeys()", { try await engine.readAllDataAndKeys().map(\.key) }),
        ("readAllEntries()", { try await engine.readAllEntries().map(\.key) }),
        ("readDataAndKeys(keys:)", { try await engine.readDataAndKeys(keys: all).map(\.key) }),
        ("readEntries(keys:)", { try await engine.readEntries(keys: all).map(\.key) }),
        ("keysExist(_:)", { try await engine.keysExist(all) }),
        ("scan(_:limit:)", { try await engine.scan(.all, limit: nil).map(\.key) }),
      ]
      for (method, list) in lists {
        context.noteProgress()
        try expect(try await list(), areInAnyOrder: all, method)
      }
    }

    Check(
      .k4, "keys.reach-nothing-outside-in-batches",
      "no key in a batch or a read reaches anything outside the directory"
    ) { try await checkConfinementOfBatches($0) }
  }
}

/// Writes keys whose escaped names may be too long for a file, in a batch and one by one, and reopens the place.
private func checkLongEscapes(_ context: CheckContext) async throws {
  var engine = try await context.open()
  let keys = AdversarialKeys.longEscapes
  var expected = entries(keys)
  try await engine.write(expected)
  for number in stride(from: 0, to: keys.count, by: 12) {
    expected[number].data = value(for: keys[number], version: 2)
    try await engine.write(expected[number].data, key: keys[number])
    context.noteProgress()
  }
  for isReopened in [false, true] {
    if isReopened {
      guard context.capabilities.contains(.persistent) else { return }
      engine = try await context.reopen(engine)
    }
    for (key, data) in expected {
      let found = try await engine.read(key: key)
      if found == data { continue }
      let when = isReopened ? " after reopening" : ""
      throw Violation(
        "read(key:) of \(key), of \(key.value.utf8.count) bytes, was \(describe(found as Any)) instead of "
          + describe(data) + when, rule: isReopened ? .w6 : found == nil ? nil : .k2)
    }
    do {
      try expect(try await engine.allKeys(), areInAnyOrder: keys, "allKeys()")
    } catch let violation as Violation {
      throw Violation(violation.description, rule: .k3)
    }
  }
}

/// Reads each key while one half of the keys is present, and then while the other half is. The halves are first every
/// other key, and then chosen at random. Otherwise two keys that an engine confuses might always be in the same half.
private func checkQuestions(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let all = AdversarialKeys.all
  var random = SeededRandom(seed: context.budget.seed)
  for round in 0..<context.byLevel(quick: 1, standard: 3, exhaustive: 8) {
    let half = Set(all.indices.filter { round == 0 ? $0.isMultiple(of: 2) : Bool.random(using: &random) })
    for isFirst in [true, false] {
      let present = all.indices.filter { half.contains($0) == isFirst }.map { all[$0] }
      try await engine.removeAllData()
      try await engine.write(entries(present))
      let written = Set(present)
      for key in all {
        context.noteProgress()
        try await checkQuestions(about: key, isThere: written.contains(key), in: engine)
      }
    }
  }
}

private func checkQuestions(about key: CacheKey, isThere: Bool, in engine: EngineUnderTest) async throws {
  let what = "of \(key), which is \(isThere ? "there" : "not there"),"
  try expect(try await engine.keyExists(key), is: isThere, "keyExists(_:) \(what)")
  try expect(try await engine.keysExist([key]), is: isThere ? [key] : [], "keysExist(_:) \(what)")
  try expect(
    try await engine.createdAt(key: key) != nil, is: isThere, "whether createdAt(key:) \(what) is a date")
  try expect(
    try await engine.updatedAt(key: key) != nil, is: isThere, "whether updatedAt(key:) \(what) is a date")
  try expect(
    try await engine.read(keys: [key]), is: isThere ? [value(for: key)] : [], "read(keys:) \(what)")
}

/// Passes the request to read(keys:), readDataAndKeys(keys:), readEntries(keys:) and keysExist(_:).
private func expectRefusal(of request: [CacheKey], at place: Int, in engine: EngineUnderTest) async throws {
  let what = "with the invalid key in place \(place) of \(request.count)"
  try await expectError(.invalidKey, from: "read(keys:) \(what)") { try await engine.read(keys: request) }
  try await expectError(.invalidKey, from: "readDataAndKeys(keys:) \(what)") {
    try await engine.readDataAndKeys(keys: request)
  }
  try await expectError(.invalidKey, from: "readEntries(keys:) \(what)") {
    try await engine.readEntries(keys: request)
  }
  try await expectError(.invalidKey, from: "keysExist(_:) \(what)") { try await engine.keysExist(request) }
}

/// Reads, writes and removes keys that look like the paths of files around the engine's directory.
private func checkConfinementOfBatches(_ context: CheckContext) async throws {
  let outer = context.root.appending(path: "outer", directoryHint: .isDirectory)
  let place = outer.appending(path: "a/place", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
  for name in ["guard", "a/guard"] { try data("guard").write(to: outer.appending(path: name)) }
  let before = try DirectoryContents(of: outer, without: place)

  let engine = try await context.open(place)
  let outward = [
    "../guard", "../../guard", "../new", "../../new", "x/../../guard", "./../guard", "..\\guard",
    outer.systemPath + "guard", outer.systemPath + "new", "file://" + outer.systemPath + "guard",
  ].map(CacheKey.init(verbatim:))
  for key in outward {
    try expect(
      try await engine.keyExists(key), is: false, "keyExists(_:) of \(key), which was never written,")
    let times = [try await engine.createdAt(key: key), try await engine.updatedAt(key: key)]
    try expect(
      times, is: [nil, nil], "createdAt(key:) and updatedAt(key:) of \(key), which was never written,")
  }
  let found = try await engine.readDataAndKeys(keys: outward)
  try expect(found, are: [], "readDataAndKeys(keys:) of keys that were never written")

  try await engine.write(entries(outward))
  try await engine.apply(outward.map { .write(value(for: $0, version: 2), key: $0) })
  try expectUnchanged(before, in: outer, without: place, after: "batches of keys that look like paths")
  try await engine.apply(outward.prefix(5).map { .remove(key: $0) })
  try await engine.remove(keys: outward)
  try expectUnchanged(before, in: outer, without: place, after: "removals of keys that look like paths")
}
