#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Calls that a long body blocks: rule T5. Closing during a body: rule O3.

extension CheckDefinition {
  @CheckList static var transactionBlockingChecks: [CheckDefinition] {
    for method in ReadMethod.allCases {
      Check(
        .t5, "transactions.block-no-\(method.rawValue)",
        "\(method.call) returns while the body of a transaction takes long",
        needs: [.transactions, .snapshotReads]
      ) { try await checkReader($0, method) }
    }
    Check(
      .t5, "transactions.block-no-thread",
      "while long bodies run in as many engines as there are processors, all other tasks run",
      needs: .transactions
    ) { try await checkThreads($0) }
    for (name, call) in callsBehindBody {
      Check(
        .t5, "transactions.\(name)-block-no-thread",
        "while more \(name) than there are processors wait for a body, all other tasks run",
        needs: .transactions
      ) { try await checkThreadsOfWaiting($0, call) }
    }
    Check(
      .t5, "transactions.admit-writers",
      "writes that wait for a long body are done after it, even while others run transactions in a loop",
      needs: .transactions
    ) { try await checkWriters($0) }
    Check(
      .o3, "transactions.under-way-at-close",
      "a transaction in progress at close(), and one that waits for it, return and persist, or throw closed "
        + "and change nothing",
      needs: .transactions
    ) { try await checkClosing($0) }
  }
}

/// How long a body waits for calls that it must not block. They usually take less than a thousandth of that.
private func timeout(_ context: CheckContext) -> Duration { context.timeout(atMost: .seconds(30)) }

/// Reads while a body runs: in its engine, in another engine on the place, and while a write waits for the body.
private func checkReader(_ context: CheckContext, _ method: ReadMethod) async throws {
  let engine = try await context.open()
  let other = try await context.openAnotherIfPossible()
  let keys = keys(3)
  try await engine.write(entries(keys))
  // The first read of an engine may have to prepare something.
  if let other { _ = try await method.found(of: keys, in: other) }
  let body = LongBody(timeout: timeout(context))
  let transaction = try await body.begin(in: engine)
  let begun = AtomicCounter()
  var waiting: Task<Void, any Error>?
  let result: Result<Void, any Error>
  do {
    try await find(keys, by: method, in: engine, beside: body)
    if let other {
      try await find(keys, by: method, in: other, beside: body, " in another engine on the place")
    }
    // An engine need not block the write. It stores the same value again, so the entries stay the same.
    waiting = onDedicatedThread(counting: begun) { try await engine.write(value(for: keys[0]), key: keys[0]) }
    try await letWait(1, of: begun)
    try await find(keys, by: method, in: engine, beside: body, ", while a write waited,")
    result = .success(())
  } catch {
    result = .failure(error)
  }
  // The body must not wait for the end of the reads, whatever their outcome.
  body.mayEnd.signal()
  _ = try await transaction.value
  // Other checks cover the outcome of such a write.
  _ = await waiting?.result
  try result.get()
}

/// Fails unless the method finds the keys, which are all keys of the engine, before the body has waited for too long.
private func find(
  _ keys: [CacheKey], by method: ReadMethod, in engine: EngineUnderTest, beside body: LongBody,
  _ when: String = ""
) async throws {
  let found = try await method.found(of: keys, in: engine)
  try expect(
    !body.hasTimedOut.isSet,
    "\(method.call)\(when) had not returned after \(body.timeout), while the body of a transaction was "
      + "running")
  try expect(
    found.count, is: 3,
    "the number of keys, of 3, that \(method.call)\(when) found during the body of a transaction")
}

/// The number of engines in which long bodies run. Each has files open, of which a process may have a thousand, or
/// connections, of which a server may allow a hundred for all engines.
func engineCount(processors: Int, isNetworked: Bool) -> Int { min(processors, isNetworked ? 16 : 64) }

private func checkThreads(_ context: CheckContext) async throws {
  let count = engineCount(
    processors: CheckExecutor.usualCount, isNetworked: context.capabilities.contains(.networked))
  var engines: [EngineUnderTest] = []
  for number in 0..<count {
    engines.append(
      try await context.open(context.root.appending(path: "\(number)", directoryHint: .isDirectory)))
  }
  let body = LongBody(timeout: timeout(context))
  let threads = CheckExecutor(count: count)
  defer { threads.stop() }
  let begun = (0..<count).map { _ in Latch() }
  let transactions = engines.enumerated().map { number, engine in
    Task(executorPreference: threads) { @concurrent in
      try await engine.withTransaction { transaction in
        begun[number].signal()
        return try body.run(transaction)
      }
    }
  }
  _ = await body.hasBegun.waitElsewhere(for: body.timeout)
  // Engines may run one body at a time, even on different places. Then the others begin after the first one has ended.
  let limit = min(.seconds(1), body.timeout / 4)
  let start = ContinuousClock.now
  for latch in begun { _ = await latch.waitElsewhere(for: limit - (ContinuousClock.now - start)) }
  // A task on the threads of the callers, and one on the cooperative pool.
  let other = Task(executorPreference: threads) { @concurrent in
    await Task.yield()
    await Task.detached {}.value
    body.mayEnd.signal()
  }
  for transaction in transactions {
    try expect(
      try await transaction.value,
      "while the bodies of \(count) transactions were running, unrelated tasks did not run for "
        + "\(body.timeout)")
  }
  await other.value
}

/// Calls that may wait for a running body.
private let callsBehindBody: [(String, @Sendable (EngineUnderTest, Int) async throws -> Void)] = [
  ("writes", { engine, number in try await engine.write(data("v"), key: key("behind \(number)")) }),
  ("batches", { engine, number in try await engine.apply([.remove(key: key("behind \(number)"))]) }),
  (
    "transactions",
    { engine, number in
      try await engine.withTransaction { try $0.write(data("v"), key: key("behind \(number)")) }
    }
  ),
  ("closings", { engine, _ in try await engine.close() }),
]

private func checkThreadsOfWaiting(
  _ context: CheckContext, _ call: @escaping @Sendable (EngineUnderTest, Int) async throws -> Void
) async throws {
  let engine = try await context.open()
  let body = LongBody(timeout: timeout(context))
  let transaction = try await body.begin(in: engine)
  let threads = CheckExecutor(count: CheckExecutor.usualCount)
  defer { threads.stop() }
  let waiting = (0..<2 * CheckExecutor.usualCount).map { number in
    Task(executorPreference: threads) { @concurrent in _ = try await isDone { try await call(engine, number) }
    }
  }
  // A task on the threads of the callers, queued behind the calls, and one on the cooperative pool.
  let other = Task(executorPreference: threads) { @concurrent in
    await Task.yield()
    await Task.detached {}.value
    body.mayEnd.signal()
  }
  // Another check covers what the body's transaction throws after close().
  _ = try await isDone { _ = try await transaction.value }
  try expect(
    body.isReleased.isSet,
    "while \(waiting.count) calls waited for the body of a transaction, unrelated tasks did not run for "
      + "\(body.timeout)")
  await other.value
  for task in waiting { try await task.value }
}

private func checkWriters(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let body = LongBody(timeout: timeout(context))
  let transaction = try await body.begin(in: engine)
  let (keys, begun) = (keys(4), AtomicCounter())
  let waiting = [
    onDedicatedThread(counting: begun) { try await engine.write(data("v"), key: keys[0]) },
    onDedicatedThread(counting: begun) { try await engine.write([(keys[1], data("v"))]) },
    onDedicatedThread(counting: begun) { try await engine.apply([.write(data("v"), key: keys[2])]) },
    onDedicatedThread(counting: begun) {
      try await engine.withTransaction { try $0.write(data("v"), key: keys[3]) }
    },
  ]
  try await letWait(waiting.count, of: begun)
  body.mayEnd.signal()
  _ = try await transaction.value
  for call in waiting { try await call.value }
  try await expectStored(keys.map { ($0, data("v")) } + [(key("long body"), data("second"))], in: engine)
  try await checkFairness(engine, timeout(context))
}

/// Fails if transactions in a loop starve other calls: if a few writes take longer than hundreds of transactions and
/// the time limit.
private func checkFairness(_ engine: EngineUnderTest, _ timeout: Duration) async throws {
  let (isDone, hasGivenUp) = (Flag(), Flag())
  let transactionCount = AtomicCounter()
  let limit = SharedTimeLimit(timeout)
  let done = try await withThrowingTaskGroup { group in
    for task in 0..<6 {
      group.addTask { @concurrent in
        while !isDone.isSet, !hasGivenUp.isSet {
          try await engine.withTransaction { try $0.write(data("loop"), key: key("loop \(task)")) }
          let count = transactionCount.increment()
          if limit.isOver(), count > 500 { hasGivenUp.set() }
          await Task.yield()
        }
        return 0
      }
    }
    group.addTask { @concurrent in
      defer { isDone.set() }
      var done = 0
      for number in 0..<6 {
        let key = key("beside the loop \(number)")
        switch number % 3 {
        case 0: try await engine.write(data("v"), key: key)
        case 1: try await engine.write([(key, data("v"))])
        default: try await engine.withTransaction { try $0.write(data("v"), key: key) }
        }
        if !hasGivenUp.isSet { done += 1 }
      }
      return done
    }
    return try await group.reduce(0, +)
  }
  try expect(
    done, is: 6,
    "the number of 6 writes that were done beside \(transactionCount.value) transactions in a loop")
}

// MARK: - Closing

/// Closes an engine while the body of a transaction runs and another transaction waits.
private func checkClosing(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let body = LongBody(timeout: timeout(context))
  let (isClosing, isClosed) = (Latch(), Latch())
  let running = try await body.begin(in: engine)
  let begun = AtomicCounter()
  let waiting = onDedicatedThread(counting: begun) {
    try await engine.withTransaction { try $0.write(data("v"), key: key("behind it")) }
  }
  try await letWait(1, of: begun)
  let closing = onDedicatedThread {
    isClosing.signal()
    try await engine.close()
    isClosed.signal()
  }
  _ = await isClosing.waitElsewhere(for: body.timeout)
  // An engine that waits for the body, as rule O3 requires, does not finish closing meanwhile.
  _ = await isClosed.waitElsewhere(for: .milliseconds(450))
  body.mayEnd.signal()
  let isRunningDone = try await isDone { _ = try await running.value }
  let isWaitingDone = try await isDone { try await waiting.value }
  let transactions = [
    ("ran", key("long body"), data("second"), isRunningDone),
    ("waited", key("behind it"), data("v"), isWaitingDone),
  ]
  try await closing.value
  engine.release()
  guard context.capabilities.contains(.persistent) else { return }
  let reopened = try await context.open()
  for (what, key, value, isDone) in transactions {
    try expect(
      try await reopened.read(key: key), is: isDone ? value : nil,
      "after reopening what a transaction had written that \(what) at close() and "
        + (isDone ? "returned" : "threw closed"))
  }
}

/// Whether the call returned. Fails if it threw anything but `closed`.
private func isDone(_ transaction: () async throws -> Void) async throws -> Bool {
  do {
    try await transaction()
    return true
  } catch let failure as CallFailure {
    guard (failure.error as? StorageError)?.code == .closed else {
      throw Violation("a call that was waiting or in progress at close() failed: \(failure)")
    }
    return false
  }
}
