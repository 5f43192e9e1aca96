#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Whether calls wait on the threads of their callers, which the check of rule C5 in CooperationChecks asks.

/// Makes every call that there is on a thread that is watched.
func checkCallerWaits(_ context: CheckContext) async throws {
  let engine = try await context.open()
  for (name, call) in callsOfEachKind(of: engine) {
    try await checkWaiting(context, during: name) { number in
      if number == 0 { try await engine.write(entries(keys(20))) }
      return WatchedCall { try await call(engine, number) }
    }
  }
  try await checkWaiting(context, during: "close()") { _ in
    let engine = try await context.openUnkept(
      context.root.appending(path: "written", directoryHint: .isDirectory))
    try await engine.write(entries(keys(5)))
    return WatchedCall { try await engine.close() }
  }
  if context.capabilities.contains(.transactions) {
    try await checkWaiting(context, during: "close() during a transaction") { _ in
      try await closingDuringTransaction(context)
    }
  }
  try await checkWaiting(context, during: "close() during reads") { _ in
    try await closingDuringReads(context)
  }
}

private typealias NumberedCall = (name: String, call: @Sendable (EngineUnderTest, Int) async throws -> Void)

/// Every call that the engine has, with the number of the call.
private func callsOfEachKind(of engine: EngineUnderTest) -> [NumberedCall] {
  var calls = ChangeMethod.all(engine.capabilities).map { change -> NumberedCall in
    (
      change.call,
      { engine, number in
        // Where there is nothing, nothing may have to be waited for. A write that waits has been found already.
        if change == .removeAll { try await engine.write(data("\(number)"), key: key("k")) }
        let changed = change.removes ? [keys(20)[number]] : keys(change.isOfOneKey ? 1 : 5)
        try await change.perform(entries(changed, version: number), in: engine)
      }
    )
  }
  calls.append(
    (wayOfReplacing.name, { try await wayOfReplacing.write($0, entries(keys(2), version: $1)) }))
  calls.append(("verify()", { engine, _ in try await engine.verify() }))
  for method in ReadMethod.allCases {
    let keys = keys(method.isOfOneKey ? 1 : 5)
    calls.append((method.call, { engine, _ in _ = try await method.found(of: keys, in: engine) }))
  }
  if engine.capabilities.contains(.changeFeed) {
    calls.append(("changes()", { engine, _ in _ = try await engine.changes() }))
  }
  return calls
}

/// A call, and the end of what runs during it.
private struct WatchedCall: Sendable {
  let perform: @Sendable () async throws -> Void
  let end: @Sendable () async -> Void

  init(
    _ perform: @escaping @Sendable () async throws -> Void,
    end: @escaping @Sendable () async -> Void = {}
  ) {
    (self.perform, self.end) = (perform, end)
  }
}

/// Makes calls one after the other on a thread that is watched. Fails if, three times, the thread stood still during nearly all of
/// them, and for longer than the machine explains: see ``CallerWaits``. A machine that is too busy to say so is asked again for a while.
///
/// - Parameter prepare: Does on other threads what comes before the call of this number.
private func checkWaiting(
  _ context: CheckContext, during name: String,
  preparing prepare: @escaping @Sendable (_ number: Int) async throws -> WatchedCall
) async throws {
  var unexplained = 0
  for _ in 0..<12 {
    let waits = try await callerWaits(context, preparing: prepare)
    switch waits.cause {
    case nil: return
    case .machine: continue
    case .engine: unexplained += 1
    }
    guard unexplained == 3 else { continue }
    throw Violation(
      "\(waits.unexplained) of \(waits.calls) consecutive calls of \(name) blocked the caller's thread for "
        + "more than a millisecond")
  }
  context.noteShortfall("the machine was too busy to check \(name)")
}

private func callerWaits(
  _ context: CheckContext, preparing prepare: @escaping @Sendable (_ number: Int) async throws -> WatchedCall
) async throws -> CallerWaits {
  let watch = ThreadWaitMonitor()
  let threads = CheckExecutor(watchedBy: watch)
  defer { threads.stop() }
  return try await Task(executorPreference: threads) { @concurrent in
    var waits = CallerWaits()
    for number in 0..<20 {
      let call = try await Task.detached { try await prepare(number) }.value
      // Before, while others do what they do beside the call, and after, for as long as it takes to compute as much.
      let waitBefore = watch.waitWithoutEngine()
      let (waited, computed) = (watch.waited, System.threadProcessorTime)
      let result: Result<Void, any Error>
      do { result = .success(try await call.perform()) } catch { result = .failure(error) }
      let (wait, computing) = (watch.waited - waited, System.threadProcessorTime - computed)
      let waitAfter = watch.waitWithoutEngine(computing: computing)
      waits.note(wait, withoutEngine: waitBefore + waitAfter)
      await call.end()
      try result.get()
      context.noteProgress()
    }
    return waits
  }.value
}

/// For how long the thread of the caller stood still during calls, compared with how long it stands still on this machine, in this
/// process, without an engine.
///
/// An engine may take a lock that another thread holds for a moment, or start a thread, and so do the allocator and the thread
/// sanitizer. On a busy machine the other thread may have to wait for a processor meanwhile, and with the sanitizer a
/// thread that starts another waits until that runs: a thread that waits for one that would like to compute stands still, and waits for no disk.
struct CallerWaits: Sendable {
  /// Why the thread stood still during nearly all calls.
  enum Cause: Sendable {
    /// It stood still for about as long as without an engine.
    case machine
    /// Nothing but the engine explains it.
    case engine
  }

  private(set) var calls = 0
  /// The calls during which the thread stood still for more than a millisecond, and those of them where nothing else explains it.
  private(set) var long = 0
  private(set) var unexplained = 0

  /// - Parameter withoutEngine: For how long the thread stood still beside the call, when it started a thread and computed.
  mutating func note(_ wait: Duration, withoutEngine: Duration) {
    calls += 1
    if wait > .milliseconds(1) { long += 1 }
    if wait > .milliseconds(1) + withoutEngine * 4 { unexplained += 1 }
  }

  /// Nil if the thread went on during some of the calls.
  var cause: Cause? {
    let most = calls * 9 / 10
    return unexplained >= most ? .engine : long >= most ? .machine : nil
  }
}

// MARK: - Closing while calls are under way

/// Closes an engine while the body of a transaction runs.
private func closingDuringTransaction(_ context: CheckContext) async throws -> WatchedCall {
  let engine = try await context.openUnkept(
    context.root.appending(path: "transaction", directoryHint: .isDirectory))
  let body = PausedBody(in: engine, milliseconds: 20) { transaction, pause in
    pause()
    try transaction.write(data("v"), key: key("k"))
  }
  try await body.begin()
  return WatchedCall {
    try await engine.close()
  } end: {
    // Rule O3 covers the outcome of the transaction.
    _ = try? await body.end()
  }
}

/// Closes an engine while several tasks read everything that is there.
private func closingDuringReads(_ context: CheckContext) async throws -> WatchedCall {
  let engine = try await context.openUnkept(
    context.root.appending(path: "reads", directoryHint: .isDirectory))
  if try await engine.keyCount() == 0 {
    try await engine.write(keys(300).map { (key: $0, data: noise(5_000)) })
  }
  let (isOver, reads, ended) = (Flag(), AtomicCounter(), AtomicCounter())
  let readers = (0..<8).map { _ in
    Task.detached {
      defer { ended.increment() }
      // An engine with nothing to close continues to work.
      while !isOver.isSet {
        _ = try await engine.readAllDataAndKeys()
        reads.increment()
      }
    }
  }
  while reads.value < readers.count, ended.value == 0 { await Task.yield() }
  return WatchedCall {
    try await engine.close()
  } end: {
    isOver.set()
    // Rule O3 covers the results of the reads.
    for reader in readers { _ = await reader.result }
  }
}
