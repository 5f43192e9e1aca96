#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// A process that is suspended while it has a place open, and one that inherited descriptors: rules C3 and O4.

extension CheckDefinition {
  @CheckList static var stoppedProcessChecks: [CheckDefinition] {
    Check(
      .c3, "processes.stopped",
      "while another process is suspended during a write, calls on the place wait or throw locked, other "
        + "places are not affected, and nothing is lost when it continues or is killed", needs: .persistent,
      needsWorker: true
    ) { try await checkStopped($0) }
    Check(
      .o4, "dropping.beside-a-child-process",
      "a child process inherits none of the engine's descriptors and locks",
      needs: .persistent
    ) { context in try await context.check(InheritedDescriptors(place: context.place)) }
  }
}

/// Starts a process while an engine is open, and opens the place again while that process runs.
struct InheritedDescriptors: CheckTask {
  let place: URL

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    try await engine.write(entries(keys(5)))
    try await expectStored(entries(keys(5)), in: engine)
    try note("starting a process")
    let child = try IdleProcess()
    let inherited = child.openFiles(in: place)
    try expect(
      inherited.isEmpty, "a process that was started had inherited \(inherited.joined(separator: ", "))")
    try note("starting processes while it writes")
    let children = try await startChildren(beside: engine)
    try await engine.close()
    engine.release()
    try note("opening it again beside processes that were started before")
    let next = EngineUnderTest(try await makeEngine(place))
    try await next.write(data("v"), key: key("later"))
    try await expectStored(entries(keys(5)) + [(key("later"), data("v"))], in: next)
    try await next.close()
    withExtendedLifetime((child, children)) {}
  }

  /// Starts processes while two tasks write. They may inherit any file that is open briefly, such as the files that
  /// Foundation reads and writes. If they inherit a lock, it blocks the next call.
  private func startChildren(beside engine: EngineUnderTest) async throws -> [IdleProcess] {
    let isOver = Flag()
    defer { isOver.set() }
    let writers = Task<Void, any Error> { @concurrent in
      _ = try await gather(0..<2) { task in
        let key = key("beside-\(task)")
        repeat {
          try await engine.write(value(for: key), key: key)
          await Task.yield()
        } while !isOver.isSet
      }
    }
    var children: [IdleProcess] = []
    for _ in 0..<20 {
      children.append(try IdleProcess())
      await Task.yield()
    }
    isOver.set()
    try await writers.value
    return children
  }
}

private func checkStopped(_ context: CheckContext) async throws {
  let isShared = context.capabilities.contains(.multiProcess)
  let rounds =
    switch context.budget.level {
    case .quick: 2
    case .standard: 5
    case .exhaustive: 60
    }
  var random = SeededRandom(seed: context.budget.seed)
  let other = try await context.open(
    context.root.appending(path: "another place", directoryHint: .isDirectory))
  let engine = isShared ? try await context.open() : nil
  var written: [CacheKey] = []
  // In one round, the process stays stopped long enough for an engine to throw that waits seconds for a lock. Not with
  // a server, which may drop a client that sends nothing.
  var longWait: Duration? = context.byLevel(
    quick: nil, standard: .seconds(4), exhaustive: context.timeoutWithLocks)
  if context.capabilities.contains(.networked) { longWait = nil }
  for round in 0..<rounds {
    context.noteProgress()
    let key = key("round-\(round)")
    let delay = Duration.microseconds(500 + random.next(upTo: 6_000))
    let (isDone, hasWaited) = try await context.withStoppedWorker(
      after: delay, isKilled: round % 2 == 1, waiting: longWait
    ) {
      if let engine {
        try await engine.write(value(for: key), key: key)
      } else {
        try await context.close(try await context.openUnregistered())
      }
    } meanwhile: {
      try await other.write(value(for: key), key: key)
      try await expectStored(entries([key]), in: other)
    }
    if hasWaited { longWait = nil }
    if isDone, isShared { written.append(key) }
    let reader = if let engine { engine } else { try await context.open() }
    let absent = isDone ? [] : [key]
    try await ExpectedContents.settle(reader)
    try await expectStored(entries(written), absent: absent, in: reader)
    _ = try await ExpectedContents.agreedEntries(of: reader)
    if !isShared { try await context.close(reader) }
  }
}

extension CheckContext {
  /// Stops a process while it works on the place, and makes a call. Then it resumes the process, or kills it.
  ///
  /// - Parameters:
  ///   - longWait: How long the process stays stopped if the call waits for it. Nil to resume or kill it right away.
  ///   - meanwhile: A call that does not use the place, and must not wait for the process.
  /// - Returns: Whether the call has returned, and whether there was a long wait. If the call has not returned, it
  ///   threw `locked`. If the place is not shared, the call opens it.
  fileprivate func withStoppedWorker(
    after delay: Duration, isKilled: Bool, waiting longWait: Duration?,
    _ call: @escaping @Sendable () async throws -> Void,
    meanwhile: @escaping @Sendable () async throws -> Void
  ) async throws -> (isDone: Bool, hasWaited: Bool) {
    let worker = try startWorker()
    defer { worker.kill() }
    try await translatingWorkerErrors { try await worker.perform(CallEngine(.open, at: place)) }
    let work = try worker.start(
      CallEngine(.work(SharedWork(batchCount: isKilled ? 100_000 : 40), share: "worker"), at: place))
    _ = try await translatingWorkerErrors { try await work.next() }
    // Part of the experiment. Its result does not depend on this delay.
    try await Task.sleep(for: delay)
    worker.stop()
    let limit = timeout(atMost: .seconds(20))
    // Separate threads, because an engine may block its callers' threads while it waits, which another rule covers.
    let threads = CheckExecutor(count: 1)
    defer { threads.stop() }
    let pending = Task(executorPreference: threads) { @concurrent () -> Result<Void, any Error> in
      do { return .success(try await call()) } catch { return .failure(error) }
    }
    let elsewhere = await withStallTimeout(limit, on: CheckExecutor(count: 1)) {
      () -> Result<Void, any Error> in
      do { return .success(try await meanwhile()) } catch { return .failure(error) }
    }
    guard case .success(let result) = elsewhere else {
      worker.kill()
      throw Violation(
        "while a process that had the place open was suspended, calls on another place did not return")
    }
    try result.get()
    let isShared = capabilities.contains(.multiProcess)
    // An engine that shares its place may wait for the process. One that does not may wait for up to a minute before it
    // throws.
    let early = await withStallTimeout(isShared ? .milliseconds(250) : limit) { await pending.value }
    noteProgress()
    if !isShared, case .success(.success) = early {
      throw Violation("a place could be opened that a suspended process had open")
    }
    var hasWaited = false
    if isShared, let longWait, case .failure = early {
      hasWaited = true
      _ = await withStallTimeout(longWait) { await pending.value }
      noteProgress()
    }
    if isKilled { worker.kill() } else { worker.resume() }
    if !isKilled, !isShared {
      try await translatingWorkerErrors {
        for try await _ in work {}
        try await worker.perform(CallEngine(.close, at: place))
      }
    }
    let outcome = await withStallTimeout(timeoutWithLocks) { await pending.value }
    if !isKilled, isShared { try await translatingWorkerErrors { for try await _ in work {} } }
    worker.kill()
    await worker.waitUntilEnd()
    switch outcome {
    case .failure:
      throw Violation(
        "a call had not returned after the suspended process \(isKilled ? "was killed" : "continued")"
      )
    case .success(.success): return (true, hasWaited)
    case .success(.failure(let failure as CallFailure))
    where (failure.error as? StorageError)?.code == .locked:
      return (false, hasWaited)
    case .success(.failure(let error)): throw error
    }
  }
}
