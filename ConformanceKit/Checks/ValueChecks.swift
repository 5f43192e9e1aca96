#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Values: rules V1 to V3.

extension CheckDefinition {
  @CheckList static var valueChecks: [CheckDefinition] {
    Check(.v1, "values.empty-is-not-absent", "an empty value is a value for every method") { context in
      let engine = try await context.open()
      let (empty, absent) = (key("empty"), key("absent"))
      try await engine.write(Data(), key: empty)
      try expect(try await engine.read(key: empty), is: Data(), "read(key:) of an empty value")
      try expect(try await engine.read(key: absent), is: nil, "read(key:) of an absent key")
      try expect(try await engine.keyExists(empty), is: true, "keyExists(_:) of a key with an empty value")
      try expect(try await engine.read(keys: [absent, empty]), is: [Data()], "read(keys:)")
      try expect(try await engine.keyCount(), is: 1, "keyCount()")
      try expect(try await engine.readAllData(), is: [Data()], "readAllData()")
      try expect(try await engine.scan(.all, limit: nil), are: [(empty, Data())], "scan(_:limit:)")
      try expect(
        try await engine.createdAt(key: empty) != nil,
        "createdAt(key:) of an empty value returned nil")
    }
    Check(
      .v1, "values.emptied",
      "an overwrite with zero bytes makes the value empty, one by one and in batches"
    ) {
      context in
      let engine = try await context.open()
      let keys = [key("a"), key("b"), key("c")]
      try await engine.write(entries(keys))
      try await engine.write(Data(), key: keys[0])
      try await engine.write([(key: keys[1], data: Data())])
      try await engine.apply([.write(Data(), key: keys[2])])
      for key in keys { try expect(try await engine.read(key: key), is: Data(), "read(key:) of \(key)") }
    }

    Check(.v2, "values.every-byte", "all 256 byte values are returned as written, alone and together") {
      context in
      let engine = try await context.open()
      let all = (0...255).map { (key: key("byte \($0)"), data: Data([UInt8($0)])) }
      try await engine.write(all)
      try expect(try await engine.readDataAndKeys(keys: all.map(\.key)), are: all, "readDataAndKeys(keys:)")
      let together = Data(0...255)
      try await engine.write(together, key: key("together"))
      try expect(try await engine.read(key: key("together")), is: together, "read(key:)")
    }
    Check(
      .v2, "values.sizes",
      "values of sizes around pages, powers of two and powers of ten are returned as written"
    ) { context in
      let engine = try await context.open()
      var sizes = [0, 1, 2, 511, 512, 1023, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 1]
      // Multiples of the chunk sizes of services and databases.
      sizes += [255, 256, 257, 1_000, 10_000, 100_000, 255 << 10, 500_000, 1_000_000, 5 << 20]
      for size in sizes {
        try await engine.write(noise(size, seed: UInt64(size)), key: key("size \(size)"))
      }
      for size in sizes {
        let found = try await engine.read(key: key("size \(size)"))
        try expect(found, is: noise(size, seed: UInt64(size)), "read(key:) of a value of \(size) bytes")
      }
    }
    Check(.v2, "values.slices", "a slice of data is stored as its own bytes, without those around it") {
      context in
      let engine = try await context.open()
      let slice = Data(0...99)[10..<20]
      try await engine.write(slice, key: key("one"))
      try await engine.write([(key: key("many"), data: slice)])
      try await engine.apply([.write(slice, key: key("applied"))])
      for key in [key("one"), key("many"), key("applied")] {
        try expect(try await engine.read(key: key), is: Data(10...19), "read(key:) of \(key)")
      }
    }
    Check(
      .v2, "values.64-mebibytes",
      "a value of 64 MiB under a key of 511 bytes is returned as written, next to others, by every method that writes"
    ) { context in
      let engine = try await context.open()
      let (large, longest) = (noise(64 << 20), key(String(repeating: "k", count: CacheKey.maximumLength)))
      let all = ChangeMethod.writing(context.capabilities)
      for method in context.budget.level == .quick ? [ChangeMethod.write] : all {
        try await engine.write(data("small"), key: key("small"))
        try await method.perform([(key: longest, data: large)], in: engine)
        context.noteProgress()
        try expect(
          try await engine.read(key: longest) == large,
          "a value of 64 MiB that \(method.call) had written was different when read")
        try expect(
          try await engine.read(key: key("small")), is: data("small"), "read(key:) of the other value")
        try await engine.write(data("now small"), key: longest)
        try expect(
          try await engine.read(key: longest), is: data("now small"), "read(key:) after an overwrite")
        context.noteProgress()
      }
    }

    Check(
      .v3, "values.start-at-zero",
      "every method returns data with indices from 0, even if it was written as a slice"
    ) { context in
      let engine = try await context.open()
      for method in ChangeMethod.writing(context.capabilities) {
        try await method.perform(slices, in: engine)
        for (read, values) in try await everyRead(of: slices.map(\.key), in: engine) {
          try expectStartAtZero(values, "\(read) after \(method.call)")
        }
        do {
          try await expectStored(slices, in: engine)
        } catch let violation as Violation {
          throw Violation("after \(method.call) of slices, \(violation)", rule: .v2)
        }
      }
    }
    Check(
      .v3, "values.start-at-zero-in-bodies",
      "a body reads its own writes with indices from 0, even those written as slices",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      let keys = slices.map(\.key)
      for isImported in [false, true] {
        try await engine.withTransaction { transaction in
          for (key, data) in slices {
            let entry = StorageEntry(key: key, data: data, createdAt: Date(), updatedAt: Date())
            if isImported { try transaction.writeEntry(entry) } else { try transaction.write(data, key: key) }
          }
          let own = try keys.map { try transaction.read(key: $0) }
          guard own == slices.map(\.data) else {
            throw Violation(
              "read(key:) of a body returned other values than the slices that it had written", rule: .t2)
          }
          try expectStartAtZero(own.compactMap { $0 }, "read(key:) of a body")
          let lists = [
            ("read(keys:)", try transaction.read(keys: keys)),
            ("a scan", try transaction.scan(.all, limit: nil).map(\.data)),
          ]
          for (read, values) in lists {
            // One of the slices is empty.
            guard values == slices.map(\.data) else {
              throw Violation(
                "\(read) of a body returned other values than the slices that it had written", rule: .t2)
            }
            try expectStartAtZero(values, "\(read) of a body")
          }
        }
      }
    }
    Check(
      .v3, "values.stay-as-they-are",
      "returned data does not change when other entries are read, the entry is overwritten or removed, or the engine is closed"
    ) { context in try await context.check(ReturnedValues(place: context.place)) }
  }
}

/// Values that are slices of larger data whose other bytes differ.
private let slices: [(key: CacheKey, data: Data)] = zip(keys(3), [7, 100_000, 0]).map { key, size in
  (key, noise(size + 20).dropFirst(10).dropLast(10))
}

private func expectStartAtZero(_ values: [Data], _ what: String) throws {
  for value in values {
    try expect(value.startIndex, is: 0, "\(what): the first index of a value of \(value.count) bytes")
  }
}

/// Checks values that the engine has returned, after other entries were read, after their entries were changed or removed
/// and after the engine was closed. If the engine has released their memory, the process may crash.
struct ReturnedValues: CheckTask {
  let place: URL

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    let keys = keys(4)
    let sizes = [10, 500, 5_000, 300_000]
    for (key, size) in zip(keys, sizes) { try await engine.write(noise(size), key: key) }
    let returned = try await everyRead(of: keys, in: engine)
    // Copies made byte by byte share no memory with the engine.
    let copies = returned.map { $0.values.map { Data(Array($0)) } }

    func expectStable(after what: String) throws {
      try note("checking values that were returned before \(what)")
      for ((method, values), copies) in zip(returned, copies) {
        for (value, copy) in zip(values, copies) {
          try expect(
            value == copy,
            "a value of \(copy.count) bytes from \(method) had other bytes after \(what)")
        }
      }
    }
    // More than an engine has buffers that it uses again.
    let others = (0..<40).map { (key: key("other \($0)"), data: noise(sizes[$0 % 3] + $0, seed: 4)) }
    try await engine.write(others)
    for (key, _) in others { _ = try await engine.read(key: key) }
    try expectStable(after: "reads of other entries")
    for (key, size) in zip(keys, sizes) { try await engine.write(noise(size, seed: 2), key: key) }
    try expectStable(after: "an overwrite")
    try await engine.remove(key: keys[3])
    try await engine.removeAllData()
    for number in 0..<20 { try await engine.write(noise(20_000, seed: 3), key: key("new \(number)")) }
    try expectStable(after: "a removal and new writes")
    try await engine.close()
    engine.release()
    try expectStable(after: "close() and the release of the engine")
  }
}

/// The values that each method returns, including transactions.
func everyRead(
  of keys: [CacheKey], in engine: EngineUnderTest
) async throws -> [(method: String, values: [Data])] {
  var answers: [(method: String, values: [Data])] = []
  for method in ReadMethod.allCases where method.givesValues {
    answers.append((method.call, try await method.found(of: keys, in: engine).compactMap { $0 }))
  }
  if engine.capabilities.contains(.transactions) {
    let (one, several) = try await engine.withTransaction { transaction in
      (try keys.compactMap { try transaction.read(key: $0) }, try transaction.read(keys: keys))
    }
    answers += [("read(key:) in a body", one), ("read(keys:) in a body", several)]
  }
  return answers
}
