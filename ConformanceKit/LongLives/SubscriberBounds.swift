#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The cost of slow and ended subscribers, in a process that does nothing else.
struct SubscriberBounds: CheckTask {
  enum Question: String, Codable, Sendable, CaseIterable {
    case slow, gone, goneUnread

    var name: String {
      switch self {
      case .slow: "slow-subscribers-are-bounded"
      case .gone: "subscribers-that-left-cost-nothing"
      case .goneUnread: "subscribers-that-were-cancelled-cost-nothing"
      }
    }

    var expectation: String {
      switch self {
      case .slow:
        "while subscribers do not read, writes continue and memory grows by no more than "
          + "\(ResourceSnapshot.byteTolerance >> 20) MiB, however many keys change; afterwards every change is covered"
      case .gone:
        "after thousands of released subscriptions there are \(ResourceSnapshot.bound) than after the first 250"
      case .goneUnread:
        "after thousands of subscriptions whose loops were cancelled there are \(ResourceSnapshot.bound) than after "
          + "the first 250"
      }
    }
  }

  let place: URL
  let question: Question
  let level: ConformanceBudget.Level
  let timeout: Duration
  let limits: ReleaseLimits

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try note("opening the engine")
    let engine = EngineUnderTest(try await makeEngine(place))
    try await engine.write(entries(keys(16)))
    switch question {
    case .slow: try await neverRead(engine, note)
    case .gone: try await subscribeOften(engine, note) { try await giveUp($0, $1) }
    case .goneUnread: try await subscribeOften(engine, note) { try await cancel($0, $1) }
    }
    try await engine.close()
  }

  /// Writes and removes very many long keys, while subscribers read nothing.
  private func neverRead(_ engine: EngineUnderTest, _ note: (String) throws -> Void) async throws {
    let last = key("last")
    // First without subscribers, so that the first snapshot includes the resources that the engine itself needs for
    // these changes.
    let wanted = level == .exhaustive ? 1_000 : 100
    let alone = try await passes(wanted, from: 0, through: engine, note)
    let subscribers = [
      try await ChangeSubscriber(to: engine, timeout: timeout),
      try await ChangeSubscriber(to: engine, timeout: timeout),
    ]
    let before = try await ResourceSnapshot.measured(in: place)
    let count = try await passes(alone, from: alone, through: engine, note)
    try await ResourceSnapshot.expectBound(
      from: before, in: place, "after \(count * 1_000) keys had changed that no subscriber had read of,",
      since: "before", isMemoryCounted: true, within: limits.time)
    try await engine.write(data("v"), key: last)
    for subscriber in subscribers {
      try await subscriber.expectCovered([last], "the changes of \(count * 1_000) keys")
    }
  }

  /// Makes this many passes, or as many as fit into the time limit. Returns their number.
  private func passes(
    _ wanted: Int, from first: Int, through engine: EngineUnderTest, _ note: (String) throws -> Void
  ) async throws -> Int {
    let start = ContinuousClock.now
    var count = 0
    // A slow engine makes fewer passes.
    while count < wanted, level == .exhaustive || ContinuousClock.now - start < timeout / 4 {
      try note("writing and removing a batch of 1000 keys, number \(first + count + 1)")
      try await pass(first + count, through: engine)
      count += 1
    }
    return count
  }

  private func pass(_ number: Int, through engine: EngineUnderTest) async throws {
    let name = String(repeating: "k", count: 496)
    let keys = (0..<1_000).map { key("\(name)\(1_000_000 + number * 1_000 + $0)") }
    try await engine.write(keys.map { ($0, data("v")) })
    try await engine.remove(keys: keys)
  }

  /// Subscribes 250 times at a time, and compares the resources in use after the first round with those after all.
  private func subscribeOften(
    _ engine: EngineUnderTest, _ note: (String) throws -> Void,
    _ leave: (EngineUnderTest, Int) async throws -> Void
  ) async throws {
    var first: ResourceSnapshot?
    let count = level == .exhaustive ? 40 : level == .standard ? 8 : 4
    for round in 1...count {
      try note("\(round * 250) subscriptions")
      for number in 0..<250 { try await leave(engine, round * 250 + number) }
      guard let first else {
        first = try await ResourceSnapshot.measured(in: place)
        continue
      }
      try await ResourceSnapshot.expectBound(
        from: first, in: place, "after \(round * 250) subscriptions", since: "after 250",
        isMemoryCounted: true, within: limits.time)
    }
    // A later subscriber receives changes as the first one did.
    let subscriber = try await ChangeSubscriber(to: engine, timeout: timeout)
    try await engine.write(data("v"), key: key("last"))
    try await subscriber.expectCovered([key("last")], "a write after very many subscriptions")
  }

  private func giveUp(_ engine: EngineUnderTest, _ number: Int) async throws {
    let changes = try await engine.changes()
    if number % 8 == 0 { try await engine.write(data("\(number)"), key: keys(16)[number / 8 % 16]) }
    withExtendedLifetime(changes) {}
  }

  private func cancel(_ engine: EngineUnderTest, _ number: Int) async throws {
    let collector = ChangeCollector(try await engine.changes())
    if number % 8 == 0 { try await engine.write(data("\(number)"), key: keys(16)[number / 8 % 16]) }
    guard await collector.cancel(within: timeout) else {
      throw Violation(
        "the loop of a subscriber had not ended \(timeout) after its task had been cancelled", rule: .x5)
    }
  }
}

extension CheckDefinition {
  @CheckList static var subscriberChecks: [CheckDefinition] {
    for question in SubscriberBounds.Question.allCases {
      Check(
        .x4, "changes.\(question.name)", question.expectation, needs: .changeFeed, needsWorker: true,
        from: question == .slow ? .standard : .quick
      ) { context in
        try await context.check(
          SubscriberBounds(
            place: context.place, question: question, level: context.budget.level,
            timeout: context.timeout(atMost: .seconds(60)), limits: context.releaseLimits))
      }
    }
  }
}
