#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Tests whether calls block the threads of their callers, for the check of rule C5 in CooperationChecks.

/// Makes every kind of call on a watched thread.
func checkCallerWaits(_ context: CheckContext) async throws {
  let engine = try await context.open()
  for (name, call) in callsOfEachKind(of: engine) {
    try await checkWaiting(context, during: name) { number in
      if number == 0 { try await engine.write(entries(keys(20))) }
      return WatchedCall { try await call(engine, number) }
    }
  }
  try await checkWaiting(context, during: "close()") { _ in
    let engine = try await context.openUnregistered(
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

/// Every kind of call that the engine supports. The closures take the number of the call.
private func callsOfEachKind(of engine: EngineUnderTest) -> [NumberedCall] {
  var calls = ChangeMethod.all(engine.capabilities).map { change -> NumberedCall in
    (
      change.call,
      { engine, number in
        // On an empty engine, removing everything may have nothing to wait for. Writes are checked before this, so a
        // write that blocks has already been found.
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

/// A call, and a closure that ends the work that runs during the call.
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

/// Makes calls one after the other on a watched thread. Fails if, three times, the thread was blocked during nearly all
/// of them and for longer than the machine explains: see ``CallerWaits``. If the machine is too busy for a result, it
/// repeats the measurement for a while.
///
/// - Parameter prepare: Prepares the call with this number, on other threads.
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
    while !waits.areDecided {
      let number = waits.calls
      let call = try await Task.detached { try await prepare(number) }.value
      // Measured before the call, while other threads work, and after it, for the processor time that the call took.
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

/// How long calls block the caller's thread, compared with how long the thread is blocked on this machine, in this
/// process, without an engine.
///
/// An engine may take a lock that another thread holds for a moment, or start a thread. So do the allocator and the
/// thread sanitizer. On a busy machine the other thread may have to wait for a processor meanwhile. With the sanitizer,
/// a thread that starts another one waits until that runs. In these cases the thread is blocked by a thread that is
/// ready to run, not by a disk.
struct CallerWaits: Sendable {
  /// Why the thread was blocked during nearly all calls.
  enum Cause: Sendable {
    /// It was blocked for about as long as without an engine.
    case machine
    /// Nothing but the engine explains it.
    case engine
  }

  /// The number of calls, and how many of them may be short if the thread is blocked during nearly all.
  private static let (most, shortMost) = (20, 2)

  private(set) var calls = 0
  /// The calls that blocked the thread for more than a millisecond, and those among them that only the engine explains.
  private(set) var long = 0
  private(set) var unexplained = 0

  /// - Parameter withoutEngine: How long the thread was blocked outside the call while it started a thread and
  ///   computed.
  mutating func note(_ wait: Duration, withoutEngine: Duration) {
    calls += 1
    if wait > .milliseconds(1) { long += 1 }
    if wait > .milliseconds(1) + withoutEngine * 4 { unexplained += 1 }
  }

  /// Whether further calls would not change the result.
  var areDecided: Bool { calls == Self.most || calls - long > Self.shortMost }

  /// Nil if the thread was not blocked during some of the calls.
  var cause: Cause? {
    let nearlyAll = calls - Self.shortMost
    return unexplained >= nearlyAll ? .engine : long >= nearlyAll ? .machine : nil
  }
}

// MARK: - Closing while calls are under way

/// Closes an engine while the body of a transaction runs.
private func closingDuringTransaction(_ context: CheckContext) async throws -> WatchedCall {
  let engine = try await context.openUnregistered(
    context.root.appending(path: "transaction", directoryHint: .isDirectory))
  let body = PausedBody(in: engine, milliseconds: 100) { transaction, pause in
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

/// Closes an engine while several tasks read everything repeatedly. After close() has begun, each task makes only a few
/// more reads: an engine may wait for calls that begin during close(), so they must come to an end.
private func closingDuringReads(_ context: CheckContext) async throws -> WatchedCall {
  let engine = try await context.openUnregistered(
    context.root.appending(path: "reads", directoryHint: .isDirectory))
  if try await engine.keyCount() == 0 {
    try await engine.write(keys(300).map { (key: $0, data: noise(5_000)) })
  }
  let (isClosing, reads, ended) = (Flag(), AtomicCounter(), AtomicCounter())
  let readers = (0..<8).map { _ in
    Task.detached {
      defer { ended.increment() }
      var left = 2
      while left > 0 {
        if isClosing.isSet { left -= 1 }
        _ = try await engine.readAllDataAndKeys()
        reads.increment()
      }
    }
  }
  while reads.value < readers.count, ended.value == 0 { await Task.yield() }
  return WatchedCall {
    isClosing.set()
    try await engine.close()
  } end: {
    // Rule O3 covers the results of the reads.
    for reader in readers { _ = await reader.result }
  }
}
