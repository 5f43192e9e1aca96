import Foundation
import StockroomCore
import StockroomKitSupport

/// Cuts the connection after each byte of a scenario, in either direction, and checks the contents
/// afterwards: rule N2.
///
/// Steps that returned have happened once, and steps that threw have not. Only a step that threw `outcomeUnknown` may
/// have done either. When the connection is cut, another engine changes the entry that the step in progress has written
/// or removed, if the step has already taken effect. An engine that retries the step without checking would undo that
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
    // Cuts after the answer to each step, and at some other points spread evenly, unless there is time for all points.
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
    // An engine with atomic batches can determine the outcome: it can commit a marker together with the change.
    try outcomes.check(ofChanges: context.capabilities.contains(.atomicBatches))
  }

  /// The number of bytes of the whole scenario in each direction, and the cuts after the first byte of the answer to
  /// each step.
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
    let concurrentChange = ConcurrentChange(direct, context)
    proxy.cut(after: cut.bytes, cut.direction, willCut: concurrentChange.prepare, onCut: concurrentChange.act)
    defer { proxy.endCut() }
    let place = "with the connection cut after byte \(cut.bytes) \(cut.direction.rawValue)"
    var possible = PossibleContents()
    do {
      let engine = try await context.open(through: proxy.port, to: server)
      for step in scenario.steps {
        try await perform(
          step, on: engine, through: proxy.port, concurrentChange, &possible, &outcomes, place)
      }
      try await context.close(engine)
    } catch let failure as CallFailure {
      // Opening or closing was cut off.
      let isUnavailable = (failure.error as? StorageError)?.code == .unavailable
      try expect(isUnavailable, "\(place), \(failure)")
    }
    if let change = try await concurrentChange.takeChange() { possible.set(change.data, for: change.key) }
    let contents = try await contents(of: direct)
    let expected = possible.description
    try expect(
      possible.observe(contents),
      "\(place), the entries afterwards were \(PossibleContents.describe(contents)) instead of \(expected)")
    try await context.untilReached { try await direct.removeAllData() }
  }

  private func perform(
    _ step: CutScenario.Step, on engine: EngineUnderTest, through port: UInt16,
    _ concurrentChange: ConcurrentChange,
    _ possible: inout PossibleContents, _ outcomes: inout CutOutcomes, _ place: String
  ) async throws {
    // The last step may have taken effect.
    if let change = try await concurrentChange.takeChange() { possible.set(change.data, for: change.key) }
    concurrentChange.watch(step, removes: step.removedKey.map(possible.certainlyContains) ?? false)
    do {
      let read = try await step.perform(on: engine)
      possible.add(step)
      let change = try await concurrentChange.takeChange()
      if let change { possible.set(change.data, for: change.key) }
      if concurrentChange.hasBeenCut { outcomes.note(step, isKnown: true) }
      if let read {
        let expected = possible.description
        try expect(
          possible.observe(read),
          "\(place), \(step.phrase) returned \(PossibleContents.describe(read)) instead of \(expected)")
      }
    } catch let failure as CallFailure {
      let change = try await concurrentChange.takeChange()
      switch (failure.error as? StorageError)?.code {
      case .outcomeUnknown?:
        // If a new engine takes too long as well, the machine is busy or the server is slow.
        if concurrentChange.hasBeenCut, try await context.isReachedSoon(server, through: port) {
          outcomes.note(step, isKnown: false)
        }
        possible.addMaybe(step)
      case .unavailable?:
        // Whether the change happened or not, the outcome is known. A read could have been repeated.
        if concurrentChange.hasBeenCut, !step.isRead {
          outcomes.note(step, isKnown: true)
        } else if concurrentChange.hasBeenCut, try await context.isReachedSoon(server, through: port) {
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

/// The outcomes of the steps that were in progress when the connection was cut. The server is reachable again at once,
/// so an engine should usually determine the outcome. On a busy machine, it may occasionally fail to.
private struct CutOutcomes {
  private var reads = (known: 0, unknown: 0)
  private var changes = (known: 0, unknown: 0)

  /// - Parameter isKnown: Whether the call returned what was read, or the outcome of the change.
  mutating func note(_ step: CutScenario.Step, isKnown: Bool) {
    switch (step.isRead, isKnown) {
    case (true, true): reads.known += 1
    case (true, false): reads.unknown += 1
    case (false, true): changes.known += 1
    case (false, false): changes.unknown += 1
    }
  }

  /// - Parameter ofChanges: Whether the engine can find out if a change has happened.
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

/// Changes, through another engine, the entry that a step has written or removed, while the answer to the step is lost.
private final class ConcurrentChange: Sendable {
  private struct State {
    var step: CutScenario.Step?
    /// Whether the key that the step removes exists.
    var removes = false
    /// Finished when the connection has been cut.
    var cut: AsyncStream<Never>.Continuation?
    var task: Task<(key: CacheKey, data: Data)?, any Error>?
    var hasBeenCut = false
  }

  private let engine: EngineUnderTest
  private let context: CheckContext
  private let state = MutexProtected(State())

  init(_ engine: EngineUnderTest, _ context: CheckContext) { (self.engine, self.context) = (engine, context) }

  /// Records the step that is about to begin.
  ///
  /// - Parameter removes: Whether the key that it removes exists.
  func watch(_ step: CutScenario.Step, removes: Bool) {
    state.withLock { ($0.step, $0.removes, $0.hasBeenCut) = (step, removes, false) }
  }

  /// Whether the connection has been cut since the step began.
  var hasBeenCut: Bool { state.withLock { $0.hasBeenCut } }

  /// Called when the connection is about to be cut. From now on, ``takeChange()`` waits for the change that is then
  /// made.
  func prepare() {
    let (cut, continuation) = AsyncStream<Never>.makeStream()
    let task = Task { [self] in
      for await _ in cut {}
      return try await change()
    }
    state.withLock { ($0.cut, $0.task, $0.hasBeenCut) = (continuation, task, true) }
  }

  /// Called on a thread of the proxy after the connection has been cut. Blocks the thread until the change has been
  /// made.
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

  /// Changes the entry that the step in progress has written or removed, if the step has taken effect.
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

  /// The change that was made, if the connection was cut since the last call.
  ///
  /// - Throws: ``CheckFailure``, since the calls of the other engine are not under test.
  func takeChange() async throws -> (key: CacheKey, data: Data)? {
    do {
      return try await state.withLock { $0.task.take() }?.value
    } catch let failure as CallFailure {
      throw CheckFailure(description: "on connections that were not cut, \(failure)")
    }
  }
}
