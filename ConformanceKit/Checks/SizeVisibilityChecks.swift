#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What readers see of many entries in one snapshot: rules W4 and R3.

extension CheckDefinition {
  @CheckList static var sizeVisibilityChecks: [CheckDefinition] {
    for change in LargeChange.allCases {
      Check(
        .w4, "sizes.\(change.rawValue)-appears-at-once",
        "a reader never sees a part of \(change.call) of thousands of entries",
        needs: change == .transaction ? [.transactions, .snapshotReads] : .atomicBatches
      ) { context in
        try await checkAtomicity(of: change, context)
      }
    }
    for method in ChangeMethod.allCases where !method.removes && !method.isOfOneKey {
      Check(
        .w4, "sizes.\(method.rawValue)-of-many-bytes-appears-at-once",
        "a reader never sees a part of \(method.call) of several MiB",
        needs: method == .transaction ? [.transactions, .snapshotReads] : .atomicBatches
      ) { context in
        try await checkAtomicityOfBytes(of: method, context)
      }
    }
    Check(
      .w4, "sizes.of-new-keys-that-appear-at-once",
      "once one of thousands of new keys of a batch has been read, keysExist(_:) and keyCount() include all of them",
      needs: .atomicBatches
    ) { try await checkNewKeys($0) }
    Check(
      .w1, "sizes.of-a-value-that-appears-at-once",
      "a reader never sees a part of a value of several MiB that is overwritten"
    ) { try await checkLargeValue($0) }
    for method in ReadMethod.ofManyValues + [.allKeys] {
      Check(
        .r3, "sizes.\(method.rawValue)-returns-one-snapshot",
        "one call of \(method.call) that reads many pages returns one snapshot",
        needs: method == .scan ? [.snapshotReads, .orderedScans] : method.needsForSnapshot
      ) { context in
        try await checkSnapshot(with: method, context)
      }
    }
  }
}

/// A call that changes thousands of entries.
private enum LargeChange: String, CaseIterable, Sendable {
  case write, apply, removal, removalOfEverything = "removal-of-everything", replacement
  case imports = "import", transaction, mixture

  var call: String {
    switch self {
    case .write: "write(_:)"
    case .apply: "apply(_:)"
    case .removal: "remove(keys:)"
    case .removalOfEverything: "removeAllData()"
    case .replacement: "an apply(_:) with removeAll"
    case .imports: wayOfImporting.name
    case .transaction: wayOfTransactions.name
    case .mixture: "an apply(_:) that writes and removes"
    }
  }

  /// Whether the keys are absent after every other change.
  var removes: Bool { self == .removal || self == .removalOfEverything }

  /// Long enough that thousands of values exceed the size of a message or a buffer.
  static func value(of version: Int) -> Data { data("\(version) " + String(repeating: "v", count: 300)) }

  /// Makes the change. Afterwards every key has the version or is absent.
  func perform(_ version: Int, on keys: [CacheKey], in engine: EngineUnderTest) async throws {
    let value = Self.value(of: version)
    let batch = keys.map { (key: $0, data: value) }
    switch self {
    case .write: try await engine.write(batch)
    case .apply: try await engine.apply(batch.map { .write($0.data, key: $0.key) })
    case .imports: try await wayOfImporting.write(engine, batch)
    case .transaction: try await wayOfTransactions.write(engine, batch)
    case .replacement: try await engine.apply([.removeAll] + batch.map { .write($0.data, key: $0.key) })
    case .mixture:
      try await engine.apply([.remove(key: key("absent"))] + batch.map { .write($0.data, key: $0.key) })
    case .removal where version.isMultiple(of: 2): try await engine.remove(keys: keys)
    case .removalOfEverything where version.isMultiple(of: 2): try await engine.removeAllData()
    // Removed entries are written again, by a method that another check tests.
    case .removal, .removalOfEverything: try await engine.write(batch)
    }
  }
}

/// Makes the change several times, while readers read some of its keys.
private func checkAtomicity(of change: LargeChange, _ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = context.byLevel(quick: 1_025, standard: 12_000, exhaustive: 70_000)
  let way = change == .transaction ? wayOfTransactions : wayOfBatches
  let affordable = max(101, try await context.affordableEntries(by: way).writes / 8)
  if affordable < count { context.noteShortfall("\(affordable) of \(count) entries") }
  let keys = (0..<min(count, affordable)).map(GrowingPlace.key)
  let samples = Set([
    0, 24, 25, 26, 99, 100, 101, 499, 500, 501, 999, 1_000, 4_096, 9_999, keys.count / 2, keys.count - 1,
  ])
  .filter { $0 < keys.count }.sorted().map { keys[$0] }
  try await engine.write(keys.map { ($0, LargeChange.value(of: 0)) })
  try await whileRunning {
    for version in 1...8 {
      context.noteProgress()
      try await change.perform(version, on: keys, in: engine)
      await Task.yield()
    }
  } readers: { reader in
    // A read of many keys may return its result in parts, each of which may be consistent by itself.
    if reader == 3, change.removes, context.capabilities.contains(.snapshotReads) {
      let found = try await engine.keysExist(keys).count
      return try expect(
        found == 0 || found == keys.count,
        "during \(change.call) of \(keys.count) entries one keysExist(_:) found \(found) of these keys")
    }
    // In reverse the first key is read last, so that a write can overtake an engine that reads key by key.
    let request = reader.isMultiple(of: 2) ? samples : samples.reversed()
    let values = try await engine.read(keys: request)
    try expect(
      (values.isEmpty && change.removes) || (values.count == samples.count && Set(values).count == 1),
      "during \(change.call) of \(keys.count) entries one read(keys:) found \(values.count) of \(samples.count) keys, in "
        + "\(Set(values).count) versions")
  }
}

/// Writes large values several times, while readers read the first one, one in the middle and the last.
private func checkAtomicityOfBytes(of method: ChangeMethod, _ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(32)
  let size = context.byLevel(quick: 200 << 10, standard: 1_100 << 10, exhaustive: 3 << 20)
  @Sendable func batch(_ version: Int) -> [(key: CacheKey, data: Data)] {
    keys.map { ($0, Data(repeating: UInt8(version), count: size)) }
  }
  try await engine.write(batch(0))
  let samples = [keys[31], keys[15], keys[0]]
  try await whileRunning(
    {
      for version in 1...4 {
        try await method.perform(batch(version), in: engine)
        context.noteProgress()
        await Task.yield()
      }
    }, readerCount: 2
  ) { reader in
    let values = try await engine.read(keys: reader == 0 ? samples : samples.reversed())
    try expect(
      values.count == samples.count && Set(values).count == 1,
      "during \(method.call) of \(keys.count) values of \(size) bytes one read(keys:) found \(values.count) of "
        + "\(samples.count) keys, in \(Set(values).count) versions")
  }
}

/// Writes batches of new keys, while readers read the last one, and then ask for all of them.
private func checkNewKeys(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = min(1_500, max(20, try await context.affordableEntries().writes / 20))
  if count < 1_500 { context.noteShortfall("\(count) of 1500 entries") }
  let batches = (0..<8).map { keys(count, prefix: "batch \($0)-") }
  let written = AtomicCounter()
  try await whileRunning(
    {
      for batch in batches {
        context.noteProgress()
        try await engine.write(entries(batch))
        written.increment()
        await Task.yield()
      }
    }, readerCount: 2
  ) { reader in
    let number = min(written.value, batches.count - 1)
    let batch = batches[number]
    guard try await engine.read(key: batch[count - 1]) != nil else { return }
    let what = "of \(count) new keys of a batch, the last of which had been read"
    if reader == 0 {
      return try expect(try await engine.keysExist(batch).count, is: count, "keysExist(_:) \(what)")
    }
    let all = try await engine.keyCount()
    try expect(
      all >= count * (number + 1),
      "keyCount(), \(what), was \(all) instead of at least \(count * (number + 1))")
  }
}

/// Overwrites a large value with others of the same size, while readers read it.
private func checkLargeValue(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (large, size) = (key("large"), (2 << 20) + 1)
  try await engine.write(Data(count: size), key: large)
  try await whileRunning(
    {
      for version in 1...context.byLevel(quick: 12, standard: 40, exhaustive: 200) {
        context.noteProgress()
        try await engine.write(Data(repeating: UInt8(version), count: size), key: large)
        await Task.yield()
      }
    }, readerCount: 2
  ) { _ in
    guard let value = try await engine.read(key: large) else {
      throw Violation("read(key:) of a key that is overwritten was nil")
    }
    let samples = Set(
      [0, size / 4, size / 2, size / 4 * 3, size - 1].filter { $0 < value.count }.map { value[$0] })
    try expect(
      value.count == size && samples.count == 1,
      "while a value of \(size) bytes was overwritten, read(key:) returned \(value.count) bytes, parts of \(samples.count) values"
    )
  }
}

/// A writer changes two entries that have all others between them, both in the order of bytes and in the order of first
/// writes. It changes their values in one batch or one after the other. If only keys can be read, it changes which of
/// the two exists.
private func checkSnapshot(with method: ReadMethod, _ context: CheckContext) async throws {
  let engine = try await context.open()
  // More than any page size: 5,121 entries are more than 2 MiB.
  let wanted = context.byLevel(quick: 1_201, standard: 5_121, exhaustive: 5_121)
  let affordable = try await context.affordableEntries()
  // Each write may wait for four reads of everything.
  let count = min(wanted, max(101, min(affordable.writes / 2, affordable.reads / 24)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries") }
  let (first, last) = (key("a"), key("z"))
  let isAtomic = context.capabilities.contains(.atomicBatches)
  try await engine.write(data("end 0"), key: first)
  let filler = data("filler " + String(repeating: "f", count: 505))
  let between = (0..<count).map(GrowingPlace.key)
  try await engine.write(between.map { (key: $0, data: filler) })
  if method != .allKeys { try await engine.write(data("end 0"), key: last) }
  try await whileRunning {
    for version in 1...60 {
      context.noteProgress()
      let value = data("end \(version)")
      if method == .allKeys {
        let (new, old) = version.isMultiple(of: 2) ? (first, last) : (last, first)
        if isAtomic {
          try await engine.apply([.write(value, key: new), .remove(key: old)])
        } else {
          try await engine.write(value, key: new)
          await Task.yield()
          try await engine.remove(key: old)
        }
      } else if isAtomic {
        try await engine.write([(first, value), (last, value)])
      } else {
        try await engine.write(value, key: first)
        await Task.yield()
        try await engine.write(value, key: last)
      }
      await Task.yield()
    }
  } readers: { _ in
    if method == .allKeys {
      let found = try await engine.allKeys().count { $0 == first || $0 == last }
      return try expect(
        found == 1 || (found == 2 && !isAtomic),
        "while one entry among \(count) others moved between the start and the end of the order of keys, "
          + "\(method.call) returned it \(found) times")
    }
    let versions = try await method.found(of: [first] + between + [last], in: engine).compactMap { value in
      guard let value, value.count < 20 else { return nil as Int? }
      let text = String(decoding: value, as: UTF8.self)
      return text.hasPrefix("end ") ? Int(text.dropFirst(4)) : nil
    }.sorted()
    let difference = (versions.last ?? 0) - (versions.first ?? 0)
    try expect(
      versions.count == 2 && (difference == 0 || (difference == 1 && !isAtomic)),
      "while the first and the last of \(count + 2) entries were overwritten, \(method.call) returned the "
        + "versions \(describe(versions)), which never existed at the same time")
  }
}
