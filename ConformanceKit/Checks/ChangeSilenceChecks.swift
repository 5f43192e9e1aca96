#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Silence of a feed, and its end: rules X3 and X5.

extension CheckDefinition {
  @CheckList static var changeSilenceChecks: [CheckDefinition] {
    for (name, calls) in silentCalls + silentCallsOfTasks {
      Check(
        .x3, "changes.silence-of-\(name)", "\(name.replacing("-", with: " ")) yield no element",
        needs: calls.needs.union(.changeFeed)
      ) { try await checkSilence($0, name, calls.body) }
    }
    Check(
      .x3, "changes.silence-while-nothing-is-called",
      "without calls, there is no element for 15 seconds",
      needs: .changeFeed, from: .standard
    ) { context in
      try await checkSilence(context, "15 s without a call", isLong: true) { _ in
        for _ in 0..<15 {
          try await Task.sleep(for: .seconds(1))
          context.noteProgress()
        }
      }
    }
    Check(
      .x3, "changes.silence-of-a-second-engine",
      "another engine that is opened on the place, reads, makes calls that change nothing and is closed "
        + "yields no element",
      needs: [.changeFeed, .persistent]
    ) { context in
      try await checkSilence(context, "an engine that reads") { engine in
        guard let second = try await context.openUnlessLocked(context.place) else { return }
        _ = try await second.readAllEntries()
        _ = try await second.scan(.all, limit: 1)
        for (_, calls) in silentCalls where context.capabilities.isSuperset(of: calls.needs) {
          try await calls.body(second)
        }
        try await context.close(second)
      }
    }
    Check(
      .x3, "processes.changes-silence-of-openings",
      "another process that opens the place, reads and closes it yields no element",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { context in
      try await context.withWorker { worker in
        try await checkSilence(context, "another process that reads") { _ in
          try await worker.perform(CallEngine(.open, at: context.place))
          _ = try await worker.entries(at: context.place)
          try await worker.perform(CallEngine(.close, at: context.place))
        }
      }
    }
    Check(
      .x3, "changes.silence-of-other-places",
      "an engine that is opened on another place, writes, removes and is closed yields no element",
      needs: .changeFeed
    ) { context in
      try await checkSilence(context, "an engine on another place") { _ in
        let other = try await context.open(
          context.root.appending(path: "other place", directoryHint: .isDirectory))
        try await other.write(entries(keys(3), version: 2))
        try await other.write(data("v"), key: key("elsewhere"))
        try await other.remove(key: keys(3)[0])
        try await other.removeAllData()
        try await context.close(other)
      }
    }
    Check(
      .x5, "changes.end-with-close",
      "close() ends the streams of subscribers that wait for an element and of those that have not read yet, "
        + "after the pending elements; then changes() throws closed", needs: .changeFeed
    ) { try await checkClosing($0) }
    Check(
      .x5, "changes.subscribed-at-close",
      "a subscription during close() throws closed, or returns a stream that ends",
      needs: [.changeFeed, .persistent]
    ) { context in
      let threads = CheckExecutor()
      defer { threads.stop() }
      for round in context.rounds(quick: 6, standard: 40, exhaustive: 600, of: "rounds of 40 subscriptions") {
        try await subscribeAtClose(context, round, on: threads)
      }
    }
    Check(
      .x5, "changes.outlive-other-engines",
      "the streams of an engine continue when another engine on the place is closed or released",
      needs: [.changeFeed, .persistent]
    ) { try await checkOtherEngines($0) }
    Check(
      .x5, "changes.outlive-other-subscribers",
      "a loop over changes ends when its task is cancelled, and other streams continue",
      needs: .changeFeed
    ) { try await checkCancellation($0) }
  }
}

// MARK: - Silence

private let silentCalls: [(String, SilentCalls)] = [
  (
    "reads",
    SilentCalls { engine in
      for method in ReadMethod.allCases {
        _ = try await method.found(of: keys(3) + [key("absent")], in: engine)
      }
    }
  ),
  ("verification", SilentCalls { try await $0.verify() }),
  (
    "empty-batches",
    SilentCalls { engine in
      try await engine.write([])
      try await engine.writeEntries([])
      try await engine.remove(keys: [])
      try await engine.apply([])
      for method in ReadMethod.allCases { _ = try await method.found(of: [], in: engine) }
    }
  ),
  (
    "refused-writes",
    SilentCalls { engine in
      let invalid = key("")
      try await expectError(.invalidKey, from: "write(_:key:)") {
        try await engine.write(data("v"), key: invalid)
      }
      try await expectError(.invalidKey, from: "write(_:)") {
        try await engine.write([(keys(3)[0], data("v")), (invalid, data("v"))])
      }
      try await expectError(.invalidKey, from: "remove(key:)") { try await engine.remove(key: invalid) }
      try await expectError(.invalidKey, from: "remove(keys:)") {
        try await engine.remove(keys: [keys(3)[0], invalid])
      }
      try await expectError(.invalidKey, from: "apply(_:)") {
        try await engine.apply([.removeAll, .write(data("v"), key: invalid)])
      }
    }
  ),
  (
    "transactions-that-read",
    SilentCalls(needs: .transactions) { engine in
      _ = try await engine.withTransaction { try $0.read(key: keys(3)[0]) }
      _ = try await engine.withTransaction { try $0.scan(.all, limit: nil).count }
      try await engine.withTransaction { _ in }
    }
  ),
  (
    "transactions-that-throw",
    SilentCalls(needs: .transactions) { engine in
      for change in changesOfThrownBodies {
        do {
          try await engine.withTransaction { transaction in
            try change(transaction)
            throw ThrownByBody()
          }
        } catch let failure as CallFailure where failure.error is ThrownByBody {}
      }
    }
  ),
]

private func checkSilence(
  _ context: CheckContext, _ what: String, isLong: Bool = false,
  _ calls: @Sendable (EngineUnderTest) async throws -> Void
) async throws {
  let engine = try await context.open()
  // An engine may deliver its changes in any order (rule X1), so none of these may still be on its way.
  let first = try await ChangeSubscriber(to: engine, context)
  try await engine.write(entries(keys(3)))
  try await expectDelivery { try await first.expectCovered(keys(3), "a batch") }
  // The feed may be unable to observe the place, or may lose its connection, for a while. An element for everything
  // covers that (rule X5), but it must not happen every time.
  let (rounds, isNetworked) = (isLong ? 2 : 3, context.capabilities.contains(.networked))
  var losses = 0
  for round in 0..<rounds {
    let subscriber = try await ChangeSubscriber(to: engine, context)
    let collector = ChangeCollector(try await engine.changes())
    let (mark, last) = (key("mark \(round)"), key("last \(round)"))
    let before = try await settle(collector, subscriber, on: mark, engine, context)
    do { try await calls(engine) } catch is MayHaveChanged { return }
    // Time enough for an engine to send an element.
    for _ in 0..<20 { try await yieldToAllThreads() }
    // The element for everything may be followed by one for the mark.
    let told = Array(collector.elements.dropFirst(before)).filter { $0 != .keys([mark]) }
    if !told.isEmpty { losses += 1 }
    let mayBeLost = told.allSatisfy { $0 == .everything } && (losses < rounds || isLong && isNetworked)
    try expect(told.isEmpty || mayBeLost, "\(what) yielded \(describe(told))")
    try await engine.write(data("v"), key: last)
    try await expectDelivery {
      try await subscriber.expectCovered([last], "the write after \(what)") { change in
        guard case .keys(let keys) = change, !keys.isSubset(of: [mark, last]) else { return }
        throw Violation(
          "the first element after \(what) was \(describe(change)), although only \(last) had been written",
          rule: .x3)
      }
    }
    if isLong, told.isEmpty { return }
  }
}

/// If a change is not delivered, that breaks rule X1, whatever the rule of the check.
private func expectDelivery(_ body: () async throws -> Void) async throws {
  do { try await body() } catch let violation as Violation {
    throw Violation(violation.description, rule: violation.rule ?? .x1)
  }
}

/// Changes a key, and waits until the collector and the subscriber have received the change and no more elements
/// arrive. An engine may also deliver changes that were made right before the subscription: all elements up to this
/// point count as such.
///
/// - Returns: The number of elements that the collector has then.
private func settle(
  _ collector: ChangeCollector, _ subscriber: ChangeSubscriber, on mark: CacheKey, _ engine: EngineUnderTest,
  _ context: CheckContext
) async throws -> Int {
  let timeout = context.timeout(atMost: .seconds(60))
  try await engine.write(data("v"), key: mark)
  try await expectDelivery {
    try expect(
      await collector.hasReceived(mark, within: timeout), "no element covered a write for \(timeout)")
    try await subscriber.expectCovered([mark], "a write")
  }
  var count = collector.elements.count
  for _ in 0..<10 {
    for _ in 0..<20 { try await yieldToAllThreads() }
    let now = collector.elements.count
    if now == count { break }
    count = now
  }
  return count
}

// MARK: - Ends

private func checkClosing(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let timeout = context.timeout(atMost: .seconds(60))
  let idle = try await ChangeSubscriber(to: engine, context)
  let waiting = [
    ChangeCollector(try await engine.changes()), ChangeCollector(try await engine.changes()),
  ]
  try await engine.write(data("v"), key: key("k"))
  let late = try await ChangeSubscriber(to: engine, context)
  // Waits for the element, because close() could overtake one that is still being delivered.
  for collector in waiting where await !collector.hasReceived(key("k"), within: timeout) {
    throw Violation("no element covered a write for \(timeout)", rule: .x1)
  }
  for _ in 0..<20 { try await yieldToAllThreads() }
  try await engine.close()
  if !context.capabilities.contains(.persistent) {
    // An engine that keeps nothing beyond its own lifetime may continue to work (rule O3).
    do {
      _ = try await engine.keyCount()
      return
    } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .closed {}
  }
  for collector in waiting {
    try expect(
      await collector.hasEnded(within: timeout),
      "the loop of a subscriber had not ended \(timeout) after close()")
  }
  try await expectDelivery { try await idle.expectCovered([key("k")], "a write before close()") }
  try await idle.expectEnd("after close()")
  try await late.expectEnd("after close()")
  try await expectError(.closed, from: "changes() of a closed engine") { _ = try await engine.changes() }
}

private func subscribeAtClose(
  _ context: CheckContext, _ round: Int, on threads: CheckExecutor
) async throws {
  let engine = try await context.open(
    context.root.appending(path: "round \(round)", directoryHint: .isDirectory))
  let tasks = (0..<40).map { number in
    Task(executorPreference: threads) { @concurrent () async throws -> ChangeSubscriber? in
      // Some tasks subscribe before the engine is closed, some while it is being closed, and some after that.
      for _ in 0..<number % 8 * 2 { await Task.yield() }
      do {
        return try await ChangeSubscriber(to: engine, context)
      } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .closed {
        return nil
      }
    }
  }
  for _ in 0..<round % 6 { await Task.yield() }
  try await engine.close()
  for task in tasks { try await task.value?.expectEnd("after close()") }
  engine.release()
}

private func checkOtherEngines(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let subscriber = try await ChangeSubscriber(to: engine, context)
  for round in 0..<4 {
    guard let second = try await context.openUnlessLocked(context.place) else { return }
    let theirs = try await ChangeSubscriber(to: second, context)
    try await second.write(data("v"), key: key("second \(round)"))
    try await theirs.expectCovered([key("second \(round)")], "a write by the engine itself")
    if round.isMultiple(of: 2) { try await context.close(second) } else { second.release() }
    let own = key("own \(round)")
    try await engine.write(data("v"), key: own)
    try await subscriber.expectCovered(
      [own, key("second \(round)")], "a write after another engine on the place was closed")
  }
}

private func checkCancellation(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let timeout = context.timeout(atMost: .seconds(60))
  let subscriber = try await ChangeSubscriber(to: engine, context)
  for round in 0..<6 {
    let other = ChangeCollector(try await engine.changes())
    let key = key("round \(round)")
    if round.isMultiple(of: 2) { try await engine.write(data("v"), key: key) }
    try expect(
      await other.cancel(within: timeout),
      "the loop of a subscriber had not ended \(timeout) after its task had been cancelled")
    // A stream that is released without having been read.
    _ = try await engine.changes()
    try await engine.write(data("v"), key: key)
    try await subscriber.expectCovered([key], "a write after another subscriber had gone")
  }
}
