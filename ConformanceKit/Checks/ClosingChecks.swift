#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Closing and releasing: rules O3 and O4.

extension CheckDefinition {
  @CheckList static var closingChecks: [CheckDefinition] {
    Check(
      .o3, "closing.twice",
      "close() may be called twice, and by many tasks at the same time; when the first call returns, the "
        + "place is released and complete"
    ) { context in
      for round in 0..<5 { try await closeTogether(context, round: round) }
      let unused = try await context.open(context.root.appending(path: "unused", directoryHint: .isDirectory))
      try await unused.close()
      try await unused.close()
    }
    Check(
      .o3, "closing.refuses-later-calls",
      "after close(), every method throws closed (or, if the engine's data ends with it, every method works "
        + "as before)"
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("k"))
      // The engine may remember what it has answered.
      for method in ReadMethod.allCases { _ = try await method.found(of: [key("k")], in: engine) }
      try await engine.verify()
      try await engine.close()
      try await checkClosed(engine, mayWork: !context.capabilities.contains(.persistent))
    }
    Check(
      .o3, "closing.releases-files",
      "after close(), the engine has no file open, even while references to it and streams of its changes "
        + "remain",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      try await useMuch(engine)
      try await withSubscriber(of: engine) {
        try await engine.close()
        try await expectNoOpenFiles(context, after: "close()")
      }
    }
    Check(
      .o3, "closing.releases-locks",
      "after close(), the place can be opened at once, even while references to the closed engine and "
        + "streams of its changes remain",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      try await useMuch(engine)
      try await withSubscriber(of: engine) {
        try await engine.close()
        for round in 0..<3 {
          let next = try await context.open()
          try await next.write(data("v"), key: key("round \(round)"))
          try await next.close()
        }
      }
    }
    Check(
      .o4, "dropping.releases-files",
      "after its last reference is released without close(), the engine has no file open, even if it has or "
        + "had subscribers",
      needs: .persistent
    ) { context in
      for _ in 0..<3 { try await context.openAndDrop { try await useMuch($0) } }
      try await expectNoOpenFiles(context, after: "the last reference was released")
      if context.capabilities.contains(.changeFeed) { try await dropWithSubscribers(context) }
    }
    Check(
      .o4, "dropping.releases-locks",
      "after the last reference is released, with or without close(), the place can be opened at once",
      needs: .persistent
    ) { context in
      for round in 0..<25 {
        try await context.openAndDrop { engine in
          try await engine.write(data("v"), key: key("round \(round)"))
          if round.isMultiple(of: 3) { try await engine.close() }
        }
      }
    }
    Check(
      .o4, "dropping.after-transactions",
      "after the last reference is released, even if the body of a transaction held one, the place can be "
        + "opened at once and no file is open",
      needs: [.persistent, .transactions]
    ) { context in
      for round in 0..<25 {
        try await context.openAndDrop { engine in
          try await engine.withTransaction { transaction in
            // Makes the body hold a reference to the engine.
            guard engine.capabilities.contains(.transactions) else { return }
            try transaction.write(data("v"), key: key("round \(round)"))
          }
        }
      }
      try await expectNoOpenFiles(context, after: "the last reference was released")
    }
    Check(
      .o4, "dropping.after-failed-opening", "an open that throws leaves no file open", needs: .persistent
    ) { context in
      let store = try await ClosedStore(in: context)
      for file in store.files {
        let copy = try store.copy { try data("no such thing\n").write(to: $0.appending(path: file)) }
        // Rule F2 covers what this opening and reading return; here only the files that stay open matter.
        _ = try? await context.openAndDrop(copy) { try await $0.readAllDataAndKeys().count }
      }
      try await expectNoOpenFiles(
        context, after: "openings on corrupted files, some of which may have thrown")
    }
    Check(
      .o4, "dropping.after-many-failed-openings",
      "two hundred opens that throw leave at most a few file descriptors open, and at most \(ResourceSnapshot.countTolerance) files",
      needs: .persistent, needsWorker: true
    ) { context in
      let worker = try context.startWorker()
      let store = try await ClosedStore(in: context)
      for file in store.files.prefix(12) {
        let copy = try store.copy { try data("no such thing\n").write(to: $0.appending(path: file)) }
        // Rule F2 covers which error it throws; here it only has to throw one.
        if (try? await context.openAndDrop(copy) { _ in }) != nil { continue }
        return try await context.check(FailedOpenings(place: copy, count: 200), in: worker)
      }
      throw Skip(reason: "The engine opens all places with corrupted files.")
    }
  }
}

/// Has eight tasks close an engine at the same time, in every other round among tasks that write and read. Each call must wait until all
/// acknowledged changes are durable, even if another call does too.
private func closeTogether(_ context: CheckContext, round: Int) async throws {
  let place = context.root.appending(path: "together \(round)", directoryHint: .isDirectory)
  let engine = try await context.open(place)
  let written = entries(keys(20))
  try await engine.write(written)
  let returned = AtomicCounter()
  let userCount = round % 2 == 0 ? 0 : 32
  try await gather(0..<userCount + 8) { task in
    if task < userCount {
      for number in 0..<4 {
        // After the engine has been closed, it throws `closed` or goes on.
        if task % 2 == 0 {
          try? await engine.write(data("v"), key: key("task \(task), \(number)"))
        } else {
          _ = try? await engine.readAllDataAndKeys()
        }
      }
      return
    }
    try await engine.close()
    guard returned.increment() == 1, context.capabilities.contains(.persistent) else { return }
    do {
      try await expectStored(written, in: try await context.open(place))
    } catch let failure as CallFailure {
      throw Violation("when the first of 8 concurrent calls of close() had returned, \(failure)")
    }
  }
  try await engine.close()
}

/// Uses the resources that an engine may keep open: statements, cursors, snapshots, connections.
private func useMuch(_ engine: EngineUnderTest) async throws {
  try await engine.write(entries(keys(50)))
  try await gather(0..<8) { index in
    try await engine.write(data("v"), key: keys(50)[index])
    _ = try await engine.read(key: keys(50)[index])
    _ = try await engine.read(keys: keys(50))
    _ = try await engine.readAllDataAndKeys()
    _ = try await engine.scan(.all, limit: 10)
  }
}

/// Runs the body while there is an unread stream of changes, if the engine has feeds.
private func withSubscriber(of engine: EngineUnderTest, _ body: () async throws -> Void) async throws {
  guard engine.capabilities.contains(.changeFeed) else { return try await body() }
  let changes = try await engine.changes()
  defer { withExtendedLifetime(changes) {} }
  try await engine.write(data("v"), key: key("k"))
  try await body()
}

/// Drops engines while one subscriber waits, another has read nothing, and others have left in the middle of their
/// streams.
private func dropWithSubscribers(_ context: CheckContext) async throws {
  let waiting = try await context.openAndDrop { engine in
    let waiting = ChangeCollector(try await engine.changes())
    try await useMuch(engine)
    return waiting
  }
  try await expectNoOpenFiles(
    context, after: "the last reference was released while a subscriber waited for a change")
  withExtendedLifetime(waiting) {}
  let unread = try await context.openAndDrop { engine in
    let unread = try await engine.changes()
    try await useMuch(engine)
    return unread
  }
  try await expectNoOpenFiles(
    context, after: "the last reference was released while there was an unread stream of changes")
  withExtendedLifetime(unread) {}
  try await context.openAndDrop { engine in
    let unread = try await engine.changes()
    let reading = ChangeCollector(try await engine.changes())
    try await useMuch(engine)
    // Rule X1 covers what it receives; here it only has to have started.
    _ = await reading.hasReceived(keys(50)[0], within: context.timeout(atMost: .seconds(60)))
    withExtendedLifetime(unread) {}
  }
  try await expectNoOpenFiles(
    context,
    after: "the last reference was released after two subscribers had ended in the middle of their streams")
}

/// Fails if files remain open. An engine may close them on its own thread, soon but not at once, depending on
/// its disk.
func expectNoOpenFiles(_ context: CheckContext, after what: String) async throws {
  var files = System.openFiles(in: context.root)
  for attempt in 0..<60 where !files.isEmpty {
    try await yieldToAllThreads()
    try await Task.sleep(for: .milliseconds(min(attempt, 50)))
    files = System.openFiles(in: context.root)
  }
  if files.isEmpty { return }
  // Counts pauses, because this process, or the engine's thread, may not run for a while on a busy machine.
  let time = max(try await timeOfClosing(context) * 20, .seconds(10))
  let allowed = min(time, context.timeout(atMost: .seconds(30)))
  for _ in 0..<Int(allowed.inSeconds * 20) where !files.isEmpty {
    try await Task.sleep(for: .milliseconds(50))
    files = System.openFiles(in: context.root)
  }
  try expect(files.isEmpty, "after \(what), these files were still open: \(describe(files))")
}

/// The time that closing an engine takes when a caller waits for it.
private func timeOfClosing(_ context: CheckContext) async throws -> Duration {
  context.noteProgress()
  let engine = try await context.open(
    context.root.appending(path: "closed for comparison", directoryHint: .isDirectory))
  try await engine.write(entries(keys(50)))
  let time = try await ContinuousClock().measure { try await context.close(engine) }
  context.noteProgress()
  return time
}

/// Calls every method of an engine that has been closed.
///
/// An engine whose data ends with it may use the default close(), which does nothing, and continues to work. It must do
/// one or the other: some calls must not throw while others succeed.
private func checkClosed(_ engine: EngineUnderTest, mayWork: Bool) async throws {
  var calls: [ClosedCall] = []
  for method in ReadMethod.allCases {
    // Rule R4 covers what they return.
    calls.append((method.call, { _ = try await method.found(of: [key("k")], in: $0) }))
  }
  for change in ChangeMethod.all(engine.capabilities) {
    calls.append((change.call, { try await change.perform([(key("k"), data("v"))], in: $0) }))
  }
  calls.append(("verify()", { try await $0.verify() }))
  var (refusing, working): ([String], [String]) = ([], [])
  for (method, call) in calls {
    do {
      try await call(engine)
      working.append(method)
    } catch let failure as CallFailure {
      guard (failure.error as? StorageError)?.code == .closed else {
        throw Violation("after close(), \(failure), which is not StorageError with code closed")
      }
      refusing.append(method)
    }
  }
  try expect(
    refusing.isEmpty || working.isEmpty,
    "after close(), some methods threw closed, but not \(working.joined(separator: ", "))")
  try expect(
    working.isEmpty || mayWork, "close() did nothing, although the engine has persistent entries")
}

private typealias ClosedCall = (method: String, call: @Sendable (EngineUnderTest) async throws -> Void)
