#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// What a process holds on to after many calls, in a process that does nothing else.
struct ResourceBounds: CheckTask {
  enum Question: String, Codable, Sendable, CaseIterable {
    case calls, errors, cancellations, openings, overwrites

    var name: String {
      switch self {
      case .calls: "leaves-nothing-after-calls"
      case .errors: "leaves-nothing-after-errors"
      case .cancellations: "leaves-nothing-after-cancelled-calls"
      case .openings: "leaves-nothing-after-openings"
      case .overwrites: "gives-room-back"
      }
    }

    var expectation: String {
      let bound = "no more than \(Holdings.slack) more files, descriptors and threads"
      return switch self {
      case .calls: "after a thousand calls of every kind there are \(bound) than after the first 250"
      case .errors: "after a thousand calls that throw there are \(bound) than after the first 250"
      case .cancellations:
        "after a thousand calls that were cancelled there are \(bound) than after the first 250"
      case .openings:
        "after 160 openings of one place, each of them closed, there are no more than \(Holdings.slack) more descriptors "
          + "and threads than after the first 40"
      case .overwrites:
        "after overwrites of few keys with 100 MiB and more the files and the memory are no more than 64 MiB larger than "
          + "before, or grow no further, there are \(bound) than before, and nothing is lost or comes back"
      }
    }
  }

  let place: URL
  let question: Question
  let level: ConformanceBudget.Level

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try note("opening the engine")
    let engine = EngineUnderTest(try await makeEngine(place))
    try await engine.write(entries(Self.keys))
    switch question {
    case .calls: try await rounds("calls", note) { try await call(engine, $0) }
    case .errors: try await rounds("calls that throw", note) { try await fail(engine, $0) }
    case .cancellations: try await rounds("calls that were cancelled", note) { try await cancel(engine, $0) }
    case .openings:
      try await engine.close()
      engine.release()
      return try await rounds("openings", of: 40, note) { _ in try await openAndClose(makeEngine) }
    case .overwrites: try await overwrite(engine, note)
    }
    try await engine.close()
  }

  private static let keys = ConformanceKit.keys(16)

  // MARK: - Calls

  /// Makes so many calls at a time, and compares what is held after the first with what is held after all.
  private func rounds(
    _ what: String, of size: Int = 250, _ note: (String) throws -> Void, _ call: (Int) async throws -> Void
  ) async throws {
    var first: Holdings?
    let count = level == .exhaustive ? 40 : 4
    for round in 1...count {
      try note("\(round * size) \(what)")
      for number in 0..<size {
        // A slow engine may need a minute for all of them.
        if number % 25 == 24 { try note("\(number + 1) of the last of \(round * size) \(what)") }
        try await call(round * size + number)
      }
      guard let first else {
        first = try await Holdings.measured(in: place)
        continue
      }
      try await Holdings.expectBound(
        from: first, in: place, "after \(round * size) \(what)", since: "after \(size)",
        // An opening may begin a new file, and which of them are joined later no rule says.
        areFilesCounted: question != .openings)
    }
  }

  private func call(_ engine: EngineUnderTest, _ number: Int) async throws {
    let key = Self.keys[number % Self.keys.count]
    switch number % 13 {
    case 0: try await engine.write(value(for: key, version: number), key: key)
    case 1: _ = try await engine.read(key: key)
    case 2: _ = try await engine.read(keys: Self.keys)
    case 3: _ = try await engine.readAllEntries()
    case 4: _ = try await engine.scan(.all, limit: 3)
    case 5: _ = try await engine.keysExist(Self.keys)
    case 6: _ = try await engine.allKeys()
    case 7: _ = try await engine.updatedAt(key: key)
    case 8: try await engine.write(entries([key, Self.keys[0]], version: number))
    case 9:
      try await engine.apply([.remove(key: key), .write(value(for: key), key: key)])
      guard engine.capabilities.contains(.transactions) else { return }
      try await engine.withTransaction { try $0.write(value(for: key), key: key) }
    case 10:
      try await engine.remove(key: ConformanceKit.key("absent"))
      try await engine.remove(keys: [key, Self.keys[0], ConformanceKit.key("absent")])
    case 11:
      try await engine.removeAllData()
      try await engine.write(entries(Self.keys, version: number))
    default:
      _ = try await engine.readAllDataAndKeys()
      try await engine.verify()
    }
  }

  /// Makes a call with a key that is not allowed.
  private func fail(_ engine: EngineUnderTest, _ number: Int) async throws {
    let (bad, good) = (ConformanceKit.key(""), Self.keys[0])
    func fails(_ call: () async throws -> Void) async throws {
      do { try await call() } catch { return }
      throw Violation("a call with an empty key returned", rule: .k1)
    }
    switch number % 6 {
    case 0: try await fails { try await engine.write(data("v"), key: bad) }
    case 1: try await fails { try await engine.write([(good, data("v")), (bad, data("v"))]) }
    case 2: try await fails { try await engine.apply([.remove(key: good), .remove(key: bad)]) }
    case 3: try await fails { _ = try await engine.read(key: bad) }
    case 4: try await fails { try await engine.remove(keys: [good, bad]) }
    default: try await fails { _ = try await engine.readDataAndKeys(keys: [good, bad]) }
    }
  }

  /// Makes a call in a task that is cancelled before it, or a little later.
  private func cancel(_ engine: EngineUnderTest, _ number: Int) async throws {
    let task = Task { @concurrent in
      if number % 3 == 0 { withUnsafeCurrentTask { $0?.cancel() } }
      try await call(engine, number)
    }
    for _ in 0..<number % 3 { await Task.yield() }
    task.cancel()
    // What a cancelled call may throw is for rule C4 to say.
    _ = await task.result
  }

  private func openAndClose(
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    _ = try await engine.read(key: Self.keys[0])
    try await engine.close()
    engine.release()
  }

  // MARK: - Room

  /// Overwrites until what is held is within the bound, or grows no further. No rule says how large a log may become before
  /// it is compacted, so that it is given several times the bound for that.
  private func overwrite(_ engine: EngineUnderTest, _ note: (String) throws -> Void) async throws {
    let before = try await Holdings.measured(in: place)
    var overwrites = try await Overwrites(in: engine)
    var series = GrowthSeries()
    let (least, most) = level == .exhaustive ? (40, 320) : (4, 20)
    for stage in 1...most {
      for _ in 0..<GrowthSeries.stage {
        try note("writing MiB \(overwrites.megabytes + 1)")
        try await overwrites.writeMegabyte()
      }
      series.append(try await Holdings.measured(in: place))
      if stage < least { continue }
      let when = overwrites.description
      try await Holdings.expectBound(from: before, in: place, when, since: "before")
      let excess = try await Holdings.excess(
        over: before, in: place, isRoomCounted: true, isAwaited: stage == least || stage == most)
      guard let excess, !series.hasStopped else { break }
      if stage == most { throw Violation("\(when) \(excess) before, and it was still growing") }
    }
    try await overwrites.verify()
  }
}
