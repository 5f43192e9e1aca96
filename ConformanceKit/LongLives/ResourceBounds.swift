#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The resources that remain in use after many calls, in a process that does nothing else.
struct ResourceBounds: CheckTask {
  enum Question: String, Codable, Sendable, CaseIterable {
    case calls, errors, cancellations, openings, overwrites, absentKeys

    var name: String {
      switch self {
      case .calls: "leaves-nothing-after-calls"
      case .errors: "leaves-nothing-after-errors"
      case .cancellations: "leaves-nothing-after-cancelled-calls"
      case .openings: "leaves-nothing-after-openings"
      case .overwrites: "frees-disk-space"
      case .absentKeys: "keeps-no-absent-keys"
      }
    }

    var expectation: String {
      let bound = ResourceSnapshot.bound
      return switch self {
      case .calls: "after a thousand calls of every kind there are \(bound) than after the first 250"
      case .errors: "after 2,400 calls of every kind that throw there are \(bound) than after the first 240"
      case .cancellations:
        "after 1,200 cancelled calls there are \(bound) than after the first 300"
      case .openings:
        "after opening and closing one place 264 times, there are at most \(ResourceSnapshot.countTolerance) more descriptors "
          + "and threads or three for each processor, and at most \(ResourceSnapshot.byteTolerance >> 20) MiB more memory, than after the first 66 "
          + "times, and the last write of each time is there"
      case .overwrites:
        "after overwrites of few keys with at least 100 MiB in total, files and memory have grown by at most 64 MiB, "
          + "or have stopped growing, there are \(bound) than before, and nothing is lost or comes back"
      case .absentKeys:
        "after reads of at least 150,000 absent keys (fewer if the engine is slow) and 30,000 scans, files and memory have grown by at most "
          + "\(ResourceBounds.toleranceForAbsentKeys >> 20) MiB"
      }
    }
  }

  let place: URL
  let question: Question
  let level: ConformanceBudget.Level
  let limits: ReleaseLimits

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    // Includes temporary files that an engine leaves in the directory for temporary files.
    try ResourceSnapshot.makeTemporaryDirectory(beside: place)
    try note("opening the engine")
    let engine = EngineUnderTest(try await makeEngine(place))
    try await engine.write(entries(Self.keys))
    switch question {
    case .calls: try await rounds("calls", note) { try await call(engine, $0) }
    // The first measurement must leave enough free descriptors for the next calls, in case each of them leaks one.
    case .errors:
      try await rounds("groups of calls that throw", of: 60, times: 10, note) { try await fail(engine, $0) }
    case .cancellations:
      try await rounds("groups of calls that were cancelled", of: 100, note) {
        try await cancel(engine, $0)
      }
    case .openings:
      try await engine.close()
      engine.release()
      var last = value(for: Self.keys[0])
      return try await rounds("openings", of: 66, note) { number in
        last = try await openAndClose(makeEngine, number, expecting: last)
      }
    case .overwrites: try await overwrite(engine, note)
    case .absentKeys: try await askForAbsentKeys(engine, note)
    }
    try await engine.close()
  }

  private static let keys = ConformanceKit.keys(16)

  // MARK: - Calls

  /// Makes this many calls at a time, and compares the resources in use after the first round with those after all
  /// rounds.
  private func rounds(
    _ what: String, of size: Int = 250, times: Int = 4, _ note: (String) throws -> Void,
    _ call: (Int) async throws -> Void
  ) async throws {
    var first: ResourceSnapshot?
    // Enough calls to exceed the bound if each leaves something behind, also with many processors, where the bound is higher.
    let scale =
      (ResourceSnapshot.threadTolerance() + ResourceSnapshot.countTolerance - 1)
      / ResourceSnapshot.countTolerance
    let count = scale * (level == .exhaustive ? 10 * times : times)
    for round in 1...count {
      try note("\(round * size) \(what)")
      for number in 0..<size {
        // A slow engine may need a minute for all of them.
        if number % 25 == 24 { try note("\(number + 1) of the last of \(round * size) \(what)") }
        try await call(round * size + number)
      }
      guard let first else {
        first = try await ResourceSnapshot.measured(in: place)
        continue
      }
      try await ResourceSnapshot.expectBound(
        from: first, in: place, "after \(round * size) \(what)", since: "after \(size)",
        // An opening may create a file, and no rule says which files are merged later.
        areFilesCounted: question != .openings,
        // The sanitizer keeps memory for every thread that has ever existed.
        isMemoryCounted: question == .openings && !System.hasThreadSanitizer, within: limits.time)
    }
  }

  private func call(_ engine: EngineUnderTest, _ number: Int) async throws {
    let key = Self.keys[number % Self.keys.count]
    // Different ones in each call, in case the engine keeps something for each of them.
    let absent = ConformanceKit.keys(2, prefix: "absent \(number), ")
    switch number % 13 {
    case 0: try await engine.write(value(for: key, version: number), key: key)
    case 1:
      for key in [key] + absent {
        _ = try await engine.read(key: key)
        _ = try await engine.keyExists(key)
      }
    case 2:
      _ = try await engine.read(keys: Self.keys + absent)
      _ = try await engine.readDataAndKeys(keys: Self.keys + absent)
      _ = try await engine.readEntries(keys: Self.keys + absent)
    case 3:
      _ = try await engine.readAllEntries()
      _ = try await engine.readAllData()
    case 4: _ = try await engine.scan(.all, limit: 3)
    case 5: _ = try await engine.keysExist(Self.keys + absent)
    case 6:
      _ = try await engine.allKeys()
      _ = try await engine.keyCount()
    case 7:
      for key in [key] + absent {
        _ = try await engine.updatedAt(key: key)
        _ = try await engine.createdAt(key: key)
      }
    case 8:
      try await engine.write(entries([key, Self.keys[0]], version: number))
      try await wayOfImporting.write(engine, entries([key, Self.keys[0]], version: number))
    case 9:
      try await engine.apply([.remove(key: key), .write(value(for: key), key: key)])
      guard engine.capabilities.contains(.transactions) else { return }
      try await engine.withTransaction { try $0.write(value(for: key), key: key) }
    case 10:
      for key in absent { try await engine.remove(key: key) }
      try await engine.remove(keys: [key, Self.keys[0]] + absent)
    case 11:
      try await engine.removeAllData()
      try await engine.write(entries(Self.keys, version: number))
    default:
      _ = try await engine.readAllDataAndKeys()
      try await engine.verify()
    }
  }

  /// Makes some calls with an invalid key, and now and then a transaction whose body throws.
  private func fail(_ engine: EngineUnderTest, _ number: Int) async throws {
    let (bad, good) = (ConformanceKit.key(""), Self.keys[0])
    func fails(_ call: () async throws -> Void) async throws {
      do { try await call() } catch { return }
      throw Violation("a call with an empty key, or with a body that throws, returned", rule: .k1)
    }
    switch number % 6 {
    case 0: try await fails { try await engine.write(data("v"), key: bad) }
    case 1: try await fails { try await engine.write([(good, data("v")), (bad, data("v"))]) }
    case 2: try await fails { try await engine.apply([.remove(key: good), .remove(key: bad)]) }
    case 3: try await fails { _ = try await engine.read(key: bad) }
    case 4: try await fails { try await engine.remove(keys: [good, bad]) }
    default: try await fails { _ = try await engine.readDataAndKeys(keys: [good, bad]) }
    }
    let calls = callsThatTakeAKey(engine.capabilities)
    for offset in 0..<3 {
      try await fails { try await calls[(number * 3 + offset) % calls.count].call(engine, bad) }
    }
    guard engine.capabilities.contains(.transactions), number.isMultiple(of: 4) else { return }
    try await fails {
      try await engine.withTransaction { transaction in
        try transaction.write(data("v"), key: good)
        throw ThrownByBody()
      }
    }
  }

  /// Makes calls of several kinds in tasks that are cancelled before the call, or a little later.
  private func cancel(_ engine: EngineUnderTest, _ number: Int) async throws {
    let tasks = [0, 4, 8].map { offset in
      Task { @concurrent in
        if number % 3 == 0 { withUnsafeCurrentTask { $0?.cancel() } }
        try await call(engine, number + offset)
      }
    }
    for _ in 0..<number % 3 { await Task.yield() }
    for task in tasks { task.cancel() }
    // Rule C4 covers what a cancelled call may throw.
    for task in tasks { _ = await task.result }
  }

  /// Checks what the previous session wrote, and writes something else.
  private func openAndClose(
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine, _ number: Int, expecting last: Data
  ) async throws -> Data {
    let engine = EngineUnderTest(try await makeEngine(place))
    let (key, next) = (Self.keys[0], value(for: Self.keys[0], version: number))
    if engine.capabilities.contains(.persistent) {
      let found = try await engine.read(key: key)
      guard found == last else {
        throw Violation(
          "after \(number - 65) openings read(key:) was \(describe(found as Any)) instead of \(describe(last)), which "
            + "had been written when the place was open last", rule: .w6)
      }
    }
    try await engine.write(next, key: key)
    try await engine.close()
    engine.release()
    return next
  }

  // MARK: - Disk space

  /// Overwrites until the resources in use are within the bound, or no longer grow. No rule limits the size of a log
  /// before it is compacted, so several times the bound is written.
  private func overwrite(_ engine: EngineUnderTest, _ note: (String) throws -> Void) async throws {
    let removed = ConformanceKit.key("removed")
    try await engine.write(value(for: removed), key: removed)
    try await engine.remove(key: removed)
    // Calls that threw or were cancelled must not keep the entries of that time in use.
    for number in 0..<24 {
      try note("group \(number + 1) of calls that throw or are cancelled")
      try await fail(engine, number)
      try await cancel(engine, number)
    }
    try await ExpectedContents.settle(engine)
    let before = try await ResourceSnapshot.measured(in: place)
    var overwrites = try await Overwrites(in: engine, removed: removed)
    var series = GrowthSeries()
    let (least, most) = level == .exhaustive ? (40, 16 * limits.stages) : (4, limits.stages)
    for stage in 1...most {
      for _ in 0..<GrowthSeries.stage {
        try note("writing MiB \(overwrites.megabytes + 1)")
        try await overwrites.writeMegabyte()
      }
      series.append(try await ResourceSnapshot.measured(in: place))
      if stage < least { continue }
      let when = overwrites.description
      try await ResourceSnapshot.expectBound(
        from: before, in: place, when, since: "before", within: limits.time)
      let excess = try await ResourceSnapshot.excess(
        over: before, in: place, isFileSizeCounted: true,
        within: stage == least || stage == most ? limits.timeOfCompaction : .zero)
      guard let excess, !series.hasStopped else { break }
      if stage == most { throw Violation("\(when) \(excess) before, and it was still growing") }
    }
    try await overwrites.verify()
  }
}
