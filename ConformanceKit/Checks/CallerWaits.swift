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

/// A call, and what ends what has been begun beside it.
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

/// Makes calls one after the other on a thread that is watched. Fails if, three times in a row, the thread
/// stood still during nearly all of them: during some, a busy machine may have been the cause.
///
/// - Parameter prepare: Does on other threads what comes before the call of this number.
private func checkWaiting(
  _ context: CheckContext, during name: String,
  preparing prepare: @escaping @Sendable (_ number: Int) async throws -> WatchedCall
) async throws {
  let calls = 20
  var waits = 0
  for _ in 0..<3 {
    let watch = ThreadWaitMonitor()
    let threads = CheckExecutor(watchedBy: watch)
    defer { threads.stop() }
    waits = try await Task(executorPreference: threads) { @concurrent in
      var waits = 0
      for number in 0..<calls {
        let call = try await Task.detached { try await prepare(number) }.value
        let before = watch.waited
        let result: Result<Void, any Error>
        do { result = .success(try await call.perform()) } catch { result = .failure(error) }
        if watch.waited - before > .milliseconds(1) { waits += 1 }
        await call.end()
        try result.get()
        context.noteProgress()
      }
      return waits
    }.value
    if waits < calls * 9 / 10 { return }
  }
  throw Violation(
    "during \(waits) of \(calls) calls of \(name), one after the other, the thread of the caller stood still for more than "
      + "a millisecond")
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
    // What becomes of the transaction is for rule O3 to say.
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
      // An engine with nothing to close goes on.
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
    // What becomes of the reads is for rule O3 to say.
    for reader in readers { _ = await reader.result }
  }
}
