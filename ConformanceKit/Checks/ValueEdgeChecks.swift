#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Values that engines are known to corrupt, and values whose buffers the caller changes: rules V1 to V3.

extension CheckDefinition {
  @CheckList static var valueEdgeChecks: [CheckDefinition] {
    Check(
      .v1, "values.empty-among-others",
      "every method that returns values includes empty ones"
    ) {
      context in
      let engine = try await context.open()
      let all = keys(5).enumerated().map { (key: $0.element, data: $0.offset == 2 ? Data() : data("v")) }
      try await engine.write(all)
      for (method, values) in try await everyRead(of: all.map(\.key), in: engine) {
        try expect(values.count(where: \.isEmpty), is: 1, "the number of empty values of \(method)")
      }
      try expect(
        try await engine.keysExist(all.map(\.key)), is: all.map(\.key), "keysExist(_:) with empty values")
      try expect(try await engine.allKeys().count, is: 5, "the number of keys of allKeys() with empty values")
    }

    Check(
      .v2, "values.that-look-like-something",
      "values that look like text, numbers or files of other programs, or that compression makes very small or "
        + "larger, are returned as written"
    ) { context in
      let engine = try await context.open()
      let written = lookalikes.enumerated().map { (key: key("value \($0.offset)"), data: $0.element) }
      for (key, data) in written.prefix(10) { try await engine.write(data, key: key) }
      try await engine.write(Array(written.dropFirst(10)))
      try await expectStored(written, in: engine)
    }
    Check(
      .v2, "values.by-every-method",
      "every method writes and reads values of any size as they are"
    ) { context in
      let engine = try await context.open()
      for size in [1, 4_097, 70_000, (1 << 20) + 1] {
        let written = ["one", "batch", "applied"].enumerated().map { number, name in
          (key: key("\(name) \(size)"), data: noise(size, seed: UInt64(number + size)))
        }
        try await engine.write(written[0].data, key: written[0].key)
        try await engine.write([written[1]])
        try await engine.apply([.write(written[2].data, key: written[2].key)])
        let expected = Set(written.map(\.data))
        for (method, values) in try await everyRead(of: written.map(\.key), in: engine) {
          let found = Set(values)
          let count = expected.subtracting(found).count
          try expect(
            count == 0,
            "\(method) did not return \(count) of 3 values of \(size) bytes as written")
        }
      }
    }
    Check(
      .v2, "values.of-megabytes", "values of 2, 4, 8, 16 and 32 MiB plus one byte are returned as written"
    ) {
      context in
      let engine = try await context.open()
      for mebibytes in [2, 4, 8, 16, 32] {
        let value = noise((mebibytes << 20) + 1, seed: UInt64(mebibytes))
        try await engine.write(value, key: key("large"))
        let found = try await engine.read(key: key("large"))
        try expect(found == value, "a value of \(mebibytes) MiB plus one byte was different when read")
      }
    }
    Check(
      .v2, "values.beyond-64-mebibytes",
      "a value of more than 64 MiB is returned as written, or its write throws valueTooLarge and the earlier "
        + "value stays",
      from: .standard
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("earlier"), key: key("k"))
      let large = noise((64 << 20) + 1)
      do {
        try await engine.write(large, key: key("k"))
        try expect(
          try await engine.read(key: key("k")) == large,
          "a value of 64 MiB plus one byte was different when read")
      } catch let failure as CallFailure {
        guard (failure.error as? StorageError)?.code == .valueTooLarge else {
          throw Violation("with a value of 64 MiB plus one byte, \(failure), not valueTooLarge")
        }
        let found = try await engine.read(key: key("k"))
        try expect(found, is: data("earlier"), "after write(_:key:) had thrown valueTooLarge, read(key:)")
      }
    }
    Check(
      .v2, "values.beyond-64-mebibytes-in-batches",
      "a batch with a value of more than 64 MiB is done completely, or throws valueTooLarge and leaves that "
        + "key as it was (with atomicBatches, all keys)", from: .standard
    ) { context in
      try await checkTooLargeValues(context)
    }

    Check(
      .v3, "values.belong-to-the-caller",
      "changing returned data changes nothing in the engine"
    ) { context in
      let engine = try await context.open()
      let (key, size) = (key("k"), 1_000)
      try await engine.write(plain(size), key: key)
      for _ in 0..<3 {
        var returned = try await engine.read(key: key) ?? Data()
        for index in returned.indices { returned[index] = 0 }
        var more = try await engine.readAllData().first ?? Data()
        more.replaceSubrange(more.startIndex..<more.endIndex, with: Data(count: size))
        for method in ReadMethod.ofManyValues {
          var values = try await method.found(of: [key], in: engine).compactMap { $0 }
          // Nothing else refers to the value, so that it is changed in place.
          while var value = values.popLast() { for index in value.indices { value[index] = 0 } }
        }
        if context.capabilities.contains(.transactions) {
          try await engine.withTransaction { transaction in
            var value = try transaction.read(key: key) ?? Data()
            for index in value.indices { value[index] = 0 }
          }
        }
        try expect(
          try await engine.read(key: key), is: plain(size),
          "after the caller had overwritten returned data, read(key:)")
      }
    }
    Check(
      .v3, "values.outlive-the-engine",
      "returned data does not change when the engine is released and another one is opened"
    ) { context in
      let size = 50_000
      let returned = try await context.openAndDrop { engine in
        try await engine.write(plain(size), key: key("k"))
        return try await everyRead(of: [key("k")], in: engine)
      }
      let next = try await context.open()
      try await next.write(plain(size, "w"), key: key("k"))
      _ = try await next.read(key: key("k"))
      for (method, values) in returned {
        try expect(
          values == [plain(size)],
          "a value from \(method) had other bytes after the engine was gone and another had been opened")
      }
    }
  }
}

/// A value that no engine mistakes for something else.
private func plain(_ size: Int, _ letter: Unicode.Scalar = "v") -> Data {
  Data(repeating: UInt8(ascii: letter), count: size)
}

/// Values that engines are known to mistake for something else.
private let lookalikes: [Data] = {
  let texts = [
    "\n", "\r\n", "a\r\nb\nc\r", " padded ", "\t", "null", "NULL", "nil", "0", "-1", "1e400", "true",
    "+5", "-0", "007", "5.0", " 5", "5\n", "0x10", "18446744073709551616", "NaN", "Infinity",
    "\"quoted\"",
    "it's", "\\", "\\0", "%00", "{}", "[]", "<?xml version=\"1.0\"?>", "SGVsbG8=", "é", "e\u{301}",
    "\u{FEFF}text",
    "\u{2028}", "日本語", "👩‍👩‍👧‍👦",
  ]
  let bytes: [[UInt8]] = [
    [0], [0, 0, 0, 0], [0x61, 0], [0x61, 0, 0x62], [0, 0x61], [0xFF], [0xFF, 0xFE, 0x61, 0], [0xC3],
    [0xC3, 0x28],
    [0xED, 0xA0, 0x80], [0x80, 0x80], [0x1F, 0x8B, 8, 0], [0x78, 0x9C], [0x28, 0xB5, 0x2F, 0xFD],
    [0x50, 0x4B, 3, 4],
    Array("bplist00".utf8), Array("SQLite format 3\0".utf8), [UInt8](repeating: 0, count: 5_000),
    [UInt8](repeating: 0xFF, count: 5_000), [UInt8](repeating: 0x20, count: 600),
  ]
  // Whole blocks of a cipher that end like their padding.
  let padded: [[UInt8]] = [(16, 1), (32, 2), (16, 15), (16, 16), (48, 16), (8, 8)].map { size, end in
    [UInt8](repeating: 0x61, count: size - end) + [UInt8](repeating: UInt8(end), count: end)
  }
  return texts.map { Data($0.utf8) } + (bytes + padded).map { Data($0) } + compressed
}()

/// Values that compression reduces to a thousandth, and values that it makes longer: random bytes without repetitions.
private let compressed: [Data] = {
  let line = Data("the same line, again and again\n".utf8)
  let repeated = (0..<10_000).reduce(into: Data()) { data, _ in data.append(line) }
  let random = [17, 300, 4_100, 65_536, 70_001, 300_001].map { incompressible($0, seed: UInt64($0)) }
  return [Data(count: 1 << 20), repeated] + random + [incompressible(40_000, seed: 1) + Data(count: 40_000)]
}()

private func checkTooLargeValues(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (small, large) = (key("small"), key("large"))
  let value = noise((64 << 20) + 1)
  var ways: [(String, @Sendable () async throws -> Void)] = [
    ("write(_:) of many", { try await engine.write([(small, data("new")), (large, value)]) }),
    ("apply(_:)", { try await engine.apply([.write(data("new"), key: small), .write(value, key: large)]) }),
    (
      wayOfImporting.name,
      {
        try await wayOfImporting.write(engine, [(key: small, data: data("new")), (key: large, data: value)])
      }
    ),
  ]
  if context.capabilities.contains(.transactions) {
    ways.append(
      (
        wayOfTransactions.name,
        {
          try await engine.withTransaction { transaction in
            try transaction.write(data("new"), key: small)
            try transaction.write(value, key: large)
          }
        }
      ))
    try await checkTooLargeValueInBody(engine, value)
  }
  for (method, write) in ways {
    context.noteProgress()
    try await engine.write([(small, data("earlier")), (large, data("earlier"))])
    do {
      try await write()
      try expect(
        try await engine.read(key: large) == value,
        "a value of 64 MiB plus one byte was different when read after \(method)")
      try expect(try await engine.read(key: small), is: data("new"), "after \(method) read(key:)")
    } catch let failure as CallFailure {
      guard (failure.error as? StorageError)?.code == .valueTooLarge else {
        throw Violation("with a value of 64 MiB plus one byte, \(failure), not valueTooLarge")
      }
      let what = "after \(method) had thrown valueTooLarge read(key:)"
      try expect(try await engine.read(key: large), is: data("earlier"), what)
      guard context.capabilities.contains(.atomicBatches) else { continue }
      try expect(
        try await engine.read(key: small), is: data("earlier"), "\(what) of another key of the batch")
    }
  }
}

/// Has a body continue after writing a value that is too large.
private func checkTooLargeValueInBody(_ engine: EngineUnderTest, _ value: Data) async throws {
  let (beside, large) = (key("beside"), key("large"))
  try await engine.write([(beside, data("earlier")), (large, data("earlier"))])
  let isStored: Bool
  do {
    isStored = try await engine.withTransaction { transaction in
      var isStored = true
      do {
        try transaction.write(value, key: large)
      } catch let error as StorageError where error.code == .valueTooLarge {
        isStored = false
      }
      try transaction.write(data("after"), key: beside)
      let expected = isStored ? value : data("earlier")
      try expect(
        try transaction.read(key: large) == expected,
        "a body read another value than its write of 64 MiB and one byte, or valueTooLarge, had left")
      try expect(
        try transaction.read(key: beside), is: data("after"),
        "read(key:) of a body of what it had written after a value of 64 MiB and one byte")
      return isStored
    }
  } catch let failure as CallFailure {
    guard (failure.error as? StorageError)?.code == .valueTooLarge else {
      throw Violation("with a value of 64 MiB plus one byte, \(failure), not valueTooLarge")
    }
    // If the engine checks sizes at commit, nothing has been written.
    for key in [beside, large] {
      try expect(
        try await engine.read(key: key), is: data("earlier"),
        "after withTransaction(_:) had thrown valueTooLarge read(key:)")
    }
    return
  }
  try expect(
    try await engine.read(key: large) == (isStored ? value : data("earlier")),
    "after a body had written 64 MiB and one byte, or caught valueTooLarge, the value was different")
  try expect(
    try await engine.read(key: beside), is: data("after"),
    "after a body that went on behind a value of 64 MiB and one byte read(key:) of another key")
}
