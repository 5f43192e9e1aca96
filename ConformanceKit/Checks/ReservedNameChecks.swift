#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Keys and values that an engine may use for itself: rules K2, V2, R1 and W6.

extension CheckDefinition {
  @CheckList static var reservedNameChecks: [CheckDefinition] {
    Check(
      .r1, "names.reserved-are-absent",
      "no key exists before it is written, even if engines use such a name internally"
    ) { context in
      let engine = try await context.open()
      for round in 0..<2 {
        let names = try await reservedKeys(context)
        try await expectAbsent(names.filter { round == 0 || $0 != key("another") }, in: engine)
        try await engine.write(data("v"), key: key("another"))
        try await expectAllWaysAgree(in: engine, on: [(key("another"), data("v"))])
      }
    }
    for (way, needs) in waysForReservedNames {
      Check(
        .k2, "names.reserved-by-\(identifier(of: way.name))",
        "a key with a name that engines use internally, or the name of a file of the engine, works like any "
          + "other for "
          + way.name, needs: needs,
        from: [wayOfBatches.name, wayOfApplying.name].contains(way.name) ? .quick : .standard
      ) { context in
        let engine = try await context.open()
        // The names of files or rows for long keys may be made from a hash.
        var written = keys(3) + [longKey("long-"), key(String(repeating: "l", count: 511))]
        try await engine.write(entries(written))
        // The second round uses the names of files of entries; the first one those of files of long keys.
        for _ in 0..<2 {
          let names = try await reservedKeys(context).filter { !written.contains($0) }
          try await way.write(engine, entries(names))
          written += names
          try await expectAllWaysAgree(in: engine, on: entries(written))
        }
        // An overwrite may create a temporary file whose name is that of another key. The keys are written in reverse,
        // so that the other key is not written again afterwards.
        try await way.write(engine, entries(written.reversed(), version: 2))
        try await expectContents(entries(written, version: 2), in: engine)
      }
    }
    Check(
      .k2, "names.reserved-are-removed-alone",
      "removing a key with any name removes that key and no other",
      from: .standard
    ) { context in
      let engine = try await context.open()
      let names = try await reservedKeys(context)
      // In both directions. Keys that are in one group here are in different groups in another round.
      for (groupCount, isBackwards) in [(8, false), (8, true), (7, false), (7, true)] {
        try await engine.write(entries(names))
        let groups = (0..<groupCount).map { group in
          names.indices.filter { $0 % groupCount == group }.map { names[$0] }
        }
        var (gone, left): ([CacheKey], Set<CacheKey>) = ([], Set(names))
        for group in isBackwards ? groups.reversed() : groups {
          if groupCount == 8 {
            for key in group { try await engine.remove(key: key) }
          } else {
            try await engine.remove(keys: group)
          }
          gone += group
          left.subtract(group)
          let request = names.filter(left.contains)
          let found = try await engine.readDataAndKeys(keys: request)
          try expect(found, are: entries(request), "after the removal of others readDataAndKeys(keys:)")
          try await expectStored(
            entries(Array(request.prefix(20))), absent: Array(gone.suffix(20)), in: engine)
        }
      }
      try await expectAllWaysAgree(in: engine, on: [])
    }
    Check(
      .w6, "names.reserved-after-reopening",
      "entries with reserved names, and their removals, persist after reopening", needs: .persistent
    ) { context in
      var engine = try await context.open()
      try await engine.write(data("v"), key: key("another"))
      let names = try await reservedKeys(context).filter { $0 != key("another") }
      try await engine.write(entries(names))
      try await context.close(engine)
      engine = try await context.open()
      let more = try ReservedNames.keys(like: context.place).filter {
        !names.contains($0) && $0 != key("another")
      }
      try await engine.write(entries(more))
      engine = try await context.reopen(engine)
      try await expectContents([(key("another"), data("v"))] + entries(names + more), in: engine)
      try await engine.remove(keys: names)
      engine = try await context.reopen(engine)
      try await expectContents([(key("another"), data("v"))] + entries(more), in: engine)
    }
    for method in ChangeMethod.allCases.filter({ !$0.removes }) {
      Check(
        .v2, "names.values-by-\(identifier(of: method))",
        "a value that looks like a tombstone, a header, null or compressed data is returned as written by "
          + "\(method.call)",
        needs: method.needs
      ) { context in
        let engine = try await context.open()
        let written = ReservedNames.values.enumerated().map {
          (key: key("value \($0.offset)"), data: $0.element)
        }
        try await method.perform(written, in: engine)
        for (key, data) in written {
          try expect(try await engine.read(key: key), is: data, "read(key:) of \(describe(data))")
        }
        try await expectAllWaysAgree(in: engine, on: written)
        guard context.capabilities.contains(.persistent) else { return }
        let reopened = try await context.reopen(engine)
        for (key, data) in written {
          try expect(
            try await reopened.read(key: key), is: data, "after reopening read(key:) of \(describe(data))")
        }
        try await checkValuesLikeFiles(method, reopened, context)
      }
    }
  }
}

/// Writes values that are like the files of the engine itself.
private func checkValuesLikeFiles(
  _ method: ChangeMethod, _ engine: EngineUnderTest, _ context: CheckContext
) async throws {
  // An engine may have other files for large values, and for those that can be compressed.
  let samples = [Data(count: 200_000), noise(200_000), data("small"), Data()]
  try await engine.write(samples.enumerated().map { (key: key("sample \($0.offset)"), data: $0.element) })
  let values = try ReservedNames.values(like: context.place)
  if values.isEmpty { return }
  let written = values.enumerated().map { (key: key("like a file \($0.offset)"), data: $0.element) }
  context.noteProgress()
  try await method.perform(written, in: engine)
  func expectAll(in engine: EngineUnderTest, _ when: String) async throws {
    for (key, data) in written {
      try expect(
        try await engine.read(key: key) == data,
        "\(when)read(key:) returned another value than \(describe(data)), which is like a file of the engine")
    }
    context.noteProgress()
  }
  try await expectAll(in: engine, "")
  try await expectAll(in: try await context.reopen(engine), "after reopening ")
}

/// The ways of writing, with the capabilities that they need.
private let waysForReservedNames: [(WayOfWriting, EngineCapabilities)] = [
  (ChangeMethod.write.way, []), (wayOfBatches, []), (wayOfApplying, []), (wayOfImporting, []),
  (wayOfTransactions, .transactions),
]

/// The name of a way of writing, as part of a check's identifier.
private func identifier(of way: String) -> String {
  switch way {
  case "write(_:key:)": "write"
  case "apply(_:)": "apply"
  case wayOfImporting.name: "import"
  case wayOfTransactions.name: "transaction"
  default: "batch"
  }
}

/// The name of a method, as part of a check's identifier.
private func identifier(of method: ChangeMethod) -> String {
  switch method {
  case .writeEntries: "import"
  case .transaction: "transaction"
  default: identifier(of: method.call)
  }
}

/// Names that engines use, and the names of this engine's own files.
private func reservedKeys(_ context: CheckContext) async throws -> [CacheKey] {
  let general = ReservedNames.keys
  return general + (try ReservedNames.keys(like: context.place).filter { !general.contains($0) })
}

/// Fails unless every method reports the keys as absent.
private func expectAbsent(_ keys: [CacheKey], in engine: EngineUnderTest) async throws {
  try expect(try await engine.readDataAndKeys(keys: keys), are: [], "readDataAndKeys(keys:) of absent keys")
  try expect(try await engine.keysExist(keys), is: [], "keysExist(_:) of absent keys")
  for key in keys {
    let what = "of \(key), which was never written,"
    try expect(try await engine.read(key: key), is: nil, "read(key:) \(what)")
    try expect(try await engine.keyExists(key), is: false, "keyExists(_:) \(what)")
    try expect(try await engine.createdAt(key: key), is: nil, "createdAt(key:) \(what)")
  }
}

/// Fails, by the rule of the check, unless these are exactly the entries.
private func expectContents(_ entries: [(key: CacheKey, data: Data)], in engine: EngineUnderTest) async throws
{
  try await expectStored(entries, in: engine)
  try expect(try await engine.allKeys(), areInAnyOrder: entries.map(\.key), "allKeys()")
}
