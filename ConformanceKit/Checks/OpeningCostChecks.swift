#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// The cost of opening: rule O6.

extension CheckDefinition {
  @CheckList static var openingCostChecks: [CheckDefinition] {
    Check(
      .o6, "opening.costs-the-same",
      "opening a store with a hundred times as many entries costs no more, whether it was closed or its "
        + "process was killed", needs: .persistent, needsWorker: true
    ) { context in
      let directories = ["small", "large"].map {
        context.root.appending(path: $0, directoryHint: .isDirectory)
      }
      let large = try await context.open(directories[1])
      let count = try await context.largeCount(
        for: large,
        in: context.byLevel(quick: .milliseconds(250), standard: .seconds(1), exhaustive: .seconds(1)),
        atLeast: context.byLevel(quick: 2_000, standard: 5_000, exhaustive: 5_000))
      // In parts, since an engine may need long for each entry.
      let (keys, size) = (keys(count), max(500, count / 20))
      for start in stride(from: 0, to: count, by: size) {
        let part = keys[start..<min(count, start + size)]
        try await large.write(part.map { (key: $0, data: noise(100)) })
        context.noteProgress()
      }
      let small = try await context.open(directories[0])
      try await small.write(keys.prefix(count / 100).map { (key: $0, data: noise(100)) })
      for engine in [large, small] { try await context.close(engine) }

      var costs: [OpeningCost] = []
      try await context.withWorker { worker in
        for directory in directories { costs += try await worker.perform(MeasureOpening(place: directory)) }
      }
      guard costs.count == 2 else {
        throw CheckFailure(description: "The worker did not report the cost of opening.")
      }
      try costs[1].expectNoMore(
        than: costs[0],
        "opening a place with \(count) entries instead of \(count / 100)")
      let recoveries = try await recoveryCosts(of: directories, context)
      try recoveries[1].expectNoMore(
        than: recoveries[0],
        "opening a place with \(count) entries instead of \(count / 100), after its process was killed,")
    }
  }
}

/// The cost of opening each place after a process was killed that had written a little there.
private func recoveryCosts(of directories: [URL], _ context: CheckContext) async throws -> [OpeningCost] {
  let practice = context.root.appending(path: "practice", directoryHint: .isDirectory)
  var costs = directories.map { _ in OpeningCost() }
  for _ in 0..<3 {
    for (index, directory) in directories.enumerated() {
      context.noteProgress()
      let killed = try context.startWorker()
      try await translatingWorkerErrors {
        try await killed.perform(CallEngine(.open, at: directory))
        for round in 0..<3 {
          let entries = (0..<20).map { SharedWork.Entry(key: "late \($0)", data: data("\(round)")) }
          try await killed.perform(CallEngine(.write(entries), at: directory))
        }
      }
      killed.kill()
      await killed.waitUntilEnd()
      try await context.withWorker { worker in
        for cost in try await worker.perform(MeasureRecovery(place: directory, practice: practice)) {
          costs[index].formLeast(with: cost)
        }
      }
    }
  }
  return costs
}

extension CheckContext {
  /// 100,000 entries, or as many as the engine writes in a batch in about this time if that is fewer. When all power
  /// cuts are checked, it is always 100,000.
  ///
  /// Leaves the engine empty.
  func largeCount(for engine: EngineUnderTest, in duration: Duration, atLeast least: Int) async throws -> Int
  {
    if budget.powerCuts == nil { return 100_000 }
    let start = ContinuousClock.now
    try await engine.write(keys(500).map { (key: $0, data: noise(100)) })
    let time = start.duration(to: .now)
    try await engine.removeAllData()
    let count = 500 * Int(duration.inSeconds / max(time.inSeconds, 0.001))
    let affordable = min(100_000, max(least, count))
    if affordable < 100_000 { noteShortfall("\(affordable) of 100000 entries") }
    return affordable
  }
}

/// The minimum cost of several openings.
struct OpeningCost: Codable, Sendable {
  var processorTime = Duration.seconds(1_000)
  var bytesRead = Int.max
  var pagesTouched = Int.max

  mutating func formLeast(with other: OpeningCost) {
    processorTime = min(processorTime, other.processorTime)
    bytesRead = min(bytesRead, other.bytesRead)
    pagesTouched = min(pagesTouched, other.pagesTouched)
  }

  /// Fails if one of the costs is more than four times that of the other opening, by more than other activity on the
  /// machine explains.
  func expectNoMore(than other: OpeningCost, _ what: String) throws {
    try expect(
      processorTime <= other.processorTime * 4 + .milliseconds(5),
      "\(what) took \(processorTime.inSeconds * 1_000) ms of a processor's time instead of "
        + "\(other.processorTime.inSeconds * 1_000) ms")
    try expect(
      bytesRead <= 4 * other.bytesRead + 1 << 20,
      "\(what) read \(bytesRead) bytes instead of \(other.bytesRead)")
    try expect(
      pagesTouched <= 4 * other.pagesTouched + 1_000,
      "\(what) touched \(pagesTouched) pages of memory for the first time instead of \(other.pagesTouched)")
  }
}

/// Opens a closed store several times, in a process that does nothing else, and sends the cost.
struct MeasureOpening: WorkerTask {
  let place: URL

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable (OpeningCost) throws -> Void
  ) async throws {
    var least = OpeningCost()
    for round in 0..<5 {
      let cost = try await costOfOpening(place, makeEngine)
      // The first openings include cleaning up after the last session, and one-time initialization of the process.
      if round >= 2 { least.formLeast(with: cost) }
    }
    try send(least)
  }
}

/// Opens a store that was not closed, once, in a process that does nothing else, and sends the cost.
struct MeasureRecovery: WorkerTask {
  let place: URL
  /// A place that is opened before, for the one-time initialization of the process.
  let practice: URL

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable (OpeningCost) throws -> Void
  ) async throws {
    for _ in 0..<3 { _ = try await costOfOpening(practice, makeEngine) }
    try send(try await costOfOpening(place, makeEngine))
  }
}

extension WorkerTask {
  /// Opens the engine and closes it again. Returns the cost of opening.
  fileprivate func costOfOpening(
    _ place: URL, _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> OpeningCost {
    let (time, usage) = (System.processorTime, System.usage)
    let engine = try await open(place, makeEngine)
    let (timeAfter, usageAfter) = (System.processorTime, System.usage)
    try await engine.close()
    engine.release()
    return OpeningCost(
      processorTime: timeAfter - time, bytesRead: usageAfter.bytesRead - usage.bytesRead,
      pagesTouched: usageAfter.pagesTouched - usage.pagesTouched)
  }
}
