import Foundation
import StockroomCore
import StockroomKitSupport

/// Cuts the connection after each byte of a scenario, in either direction, and checks the contents
/// afterwards: rule N2.
///
/// Steps that returned have happened once, steps that threw have not, and only after `outcomeUnknown` may it
/// be either. When the connection is cut, another engine changes what the step in progress has written or
/// removed, if that is visible by then: an engine that retries the step without checking would undo that
/// change.
struct CutSearch: Sendable {
  private let context: CheckContext
  private let server: ConformanceServer
  private let scenario: CutScenario

  init(_ context: CheckContext, _ server: ConformanceServer) {
    self.context = context
    self.server = server
    scenario = CutScenario(context.capabilities)
  }

  func run() async throws {
    let proxy = try NetworkProxy(to: server.address)
    defer { proxy.close() }
    let passage = try NetworkProxy(to: server.address)
    defer { passage.close() }
    let direct = try await context.untilReached { try await context.open(through: passage.port, to: server) }
    defer { direct.release() }
    let (lengths, lostAnswers) = try await context.untilReached { try await measure(proxy, direct) }
    let cuts = NetworkProxy.Direction.allCases.flatMap { direction in
      (0...lengths[direction, default: 0]).map { NetworkProxy.Cut(direction: direction, bytes: $0) }
    }
    // The answer of each step, and a part of the others, spread over all, unless there is time for all.
    var random = SeededRandom(seed: context.budget.seed)
    let order =
      context.budget.level == .exhaustive
      ? cuts : lostAnswers.shuffled(using: &random) + cuts.shuffled(using: &random)
    var outcomes = CutOutcomes()
    for number in context.rounds(quick: 24, standard: 400, exhaustive: order.count, of: "cuts") {
      guard number < order.count else { break }
      context.noteProgress()
      try await check(order[number], proxy, direct, &outcomes)
    }
    // A mark that is committed with a change tells later whether it has happened.
    try outcomes.check(ofChanges: context.capabilities.contains(.atomicBatches))
  }

  /// How many bytes the whole scenario takes each way, and the cuts after the first byte of the answer to each step.
  private func measure(
    _ proxy: NetworkProxy, _ direct: EngineUnderTest
  ) async throws -> (lengths: [NetworkProxy.Direction: Int], lostAnswers: [NetworkProxy.Cut]) {
    _ = proxy.takeCounts()
    let engine = try await context.open(through: proxy.port, to: server)
    var lengths = proxy.takeCounts()
    var lostAnswers: [NetworkProxy.Cut] = []
    for step in scenario.steps {
      let before = lengths[.toEngine, default: 0]
      _ = try await step.perform(on: engine)
      lengths.merge(proxy.takeCounts(), uniquingKeysWith: +)
      if lengths[.toEngine, default: 0] > before {
        lostAnswers.append(NetworkProxy.Cut(direction: .toEngine, bytes: before + 1))
      }
    }
    try await context.close(engine)
    try await direct.removeAllData()
    lengths.merge(proxy.takeCounts(), uniquingKeysWith: +)
    return (lengths, lostAnswers)
  }

  private func check(
    _ cut: NetworkProxy.Cut, _ proxy: NetworkProxy, _ direct: EngineUnderTest, _ outcomes: inout CutOutcomes
  ) async throws {
    let intruder = Intruder(direct, context)
    proxy.cut(after: cut.bytes, cut.direction, willCut: intruder.prepare, onCut: intruder.act)
    defer { proxy.endCut() }
    let place = "with the connection cut after byte \(cut.bytes) \(cut.direction.rawValue)"
    var possible = PossibleContents()
    do {
      let engine = try await context.open(through: proxy.port, to: server)
      for step in scenario.steps {
        try await perform(step, on: engine, through: proxy.port, intruder, &possible, &outcomes, place)
      }
      try await context.close(engine)
    } catch let failure as CallFailure {
      // The opening was cut, or the closing.
      let isUnavailable = (failure.error as? StorageError)?.code == .unavailable
      try expect(isUnavailable, "\(place), \(failure)")
    }
    if let change = try await intruder.takeChange() { possible.set(change.data, for: change.key) }
    let contents = try await contents(of: direct)
    let expected = possible.description
    try expect(
      possible.observe(contents),
      "\(place), the entries afterwards were \(PossibleContents.describe(contents)) instead of \(expected)")
    try await context.untilReached { try await direct.removeAllData() }
  }

  private func perform(
    _ step: CutScenario.Step, on engine: EngineUnderTest, through port: UInt16, _ intruder: Intruder,
    _ possible: inout PossibleContents, _ outcomes: inout CutOutcomes, _ place: String
  ) async throws {
    // The effects of the end of the last step.
    if let change = try await intruder.takeChange() { possible.set(change.data, for: change.key) }
    intruder.watch(step, removes: step.removedKey.map(possible.surelyContains) ?? false)
    do {
      let read = try await step.perform(on: engine)
      possible.add(step)
      let change = try await intruder.takeChange()
      if let change { possible.set(change.data, for: change.key) }
      if intruder.hasBeenCut { outcomes.note(step, isKnown: true) }
      if let read {
        let expected = possible.description
        try expect(
          possible.observe(read),
          "\(place), \(step.phrase) returned \(PossibleContents.describe(read)) instead of \(expected)")
      }
    } catch let failure as CallFailure {
      let change = try await intruder.takeChange()
      switch (failure.error as? StorageError)?.code {
      case .outcomeUnknown?:
        // If a new engine takes too long as well, the machine is busy or the server is slow.
        if intruder.hasBeenCut, try await context.isReachedSoon(server, through: port) {
          outcomes.note(step, isKnown: false)
        }
        possible.addMaybe(step)
      case .unavailable?:
        // That a change has not happened is as good an answer as that it has; a read could have been done again.
        if intruder.hasBeenCut, !step.isRead {
          outcomes.note(step, isKnown: true)
        } else if intruder.hasBeenCut, try await context.isReachedSoon(server, through: port) {
          outcomes.note(step, isKnown: false)
        }
        try expect(
          change == nil, "\(place), \(step.phrase) threw unavailable although it had taken effect")
      default: throw Violation("\(place), \(failure)")
      }
      if let change { possible.set(change.data, for: change.key) }
    }
  }

  private func contents(of engine: EngineUnderTest) async throws -> CutScenario.Contents {
    try contentsByKey(try await context.untilReached { try await engine.readAllDataAndKeys() })
  }
}

/// The outcomes of the steps that were in progress when the connection was cut. The server is reachable again
/// at once, so an engine may fail to determine an outcome occasionally, on a busy machine, but not as a rule.
private struct CutOutcomes {
  private var reads = (known: 0, unknown: 0)
  private var changes = (known: 0, unknown: 0)

  /// - Parameter isKnown: Whether the caller has been told what was read, or whether the change has happened.
  mutating func note(_ step: CutScenario.Step, isKnown: Bool) {
    switch (step.isRead, isKnown) {
    case (true, true): reads.known += 1
    case (true, false): reads.unknown += 1
    case (false, true): changes.known += 1
    case (false, false): changes.unknown += 1
    }
  }

  /// - Parameter ofChanges: Whether the engine can find out whether a change has happened.
  func check(ofChanges: Bool) throws {
    for (what, code, count, isChecked) in [
      ("reads", "unavailable", reads, true), ("changes", "outcomeUnknown", changes, ofChanges),
    ] where isChecked {
      try expect(
        count.unknown < 3 || count.known > count.unknown,
        "\(count.unknown) of \(count.unknown + count.known) \(what) whose connection was cut threw \(code), "
          + "although the server was reachable and the outcome could have been determined")
    }
  }
}

/// Changes, through another engine, what a step has written or removed, at the moment when the answer to the
/// step is lost.
private final class Intruder: Sendable {
  private struct State {
    var step: CutScenario.Step?
    /// Whether an entry is there of which the step removes the key.
    var removes = false
    /// What it waits for.
    var cut: AsyncStream<Never>.Continuation?
    var task: Task<(key: CacheKey, data: Data)?, any Error>?
    var hasBeenCut = false
  }

  private let engine: EngineUnderTest
  private let context: CheckContext
  private let state = MutexProtected(State())

  init(_ engine: EngineUnderTest, _ context: CheckContext) { (self.engine, self.context) = (engine, context) }

  /// The step that is about to begin.
  ///
  /// - Parameter removes: Whether an entry is there of which it removes the key.
  func watch(_ step: CutScenario.Step, removes: Bool) {
    state.withLock { ($0.step, $0.removes, $0.hasBeenCut) = (step, removes, false) }
  }

  /// Whether the connection has been cut since the step began.
  var hasBeenCut: Bool { state.withLock { $0.hasBeenCut } }

  /// The connection is about to be cut. From now on, ``takeChange()`` waits for the change that is made then.
  func prepare() {
    let (cut, continuation) = AsyncStream<Never>.makeStream()
    let task = Task { [self] in
      for await _ in cut {}
      return try await change()
    }
    state.withLock { ($0.cut, $0.task, $0.hasBeenCut) = (continuation, task, true) }
  }

  /// The connection has been cut. Called on a thread of the proxy, which waits.
  func act() {
    let (cut, task) = state.withLock { ($0.cut.take(), $0.task) }
    cut?.finish()
    let isDone = DispatchSemaphore(value: 0)
    Task {
      _ = await task?.result
      isDone.signal()
    }
    isDone.wait()
  }

  /// Changes what the step in progress has written or removed, if it has taken effect.
  private func change() async throws -> (key: CacheKey, data: Data)? {
    let (step, removes) = state.withLock { ($0.step, $0.removes) }
    let result: (key: CacheKey, data: Data?)
    if let last = step?.written {
      result = (last.key, last.data)
    } else if removes, let removed = step?.removedKey {
      result = (removed, nil)
    } else {
      return nil
    }
    let found = try await context.untilReached { try await engine.read(key: result.key) }
    guard found == result.data else { return nil }
    let change = (key: result.key, data: data("intruder"))
    try await context.untilReached { try await engine.write(change.data, key: change.key) }
    return change
  }

  /// What has been changed, if the connection was cut since this was last asked.
  ///
  /// - Throws: ``CheckFailure``, since the calls of the other engine are none of the one under test.
  func takeChange() async throws -> (key: CacheKey, data: Data)? {
    do {
      return try await state.withLock { $0.task.take() }?.value
    } catch let failure as CallFailure {
      throw CheckFailure(description: "on connections that were not cut, \(failure)")
    }
  }
}
