import StockroomCore

// Calls that are cancelled while the server does not answer: rules C4 and N1.

extension NetworkUnderTest {
  func checkCancellation(_ call: NetworkCall, _ mode: NetworkProxy.Mode = .silent) async throws {
    var durations: [Duration] = []
    for attempt in 0..<4 * Self.attempts where durations.count < Self.attempts {
      context.noteProgress()
      // Uses a new key in each attempt, because the outcome of the writes of a late attempt may be unknown.
      guard let duration = try await checkCancellationOnce(call, mode, writing: "new \(attempt)") else {
        continue
      }
      durations.append(duration)
      // Otherwise the time limit might have ended the call.
      if duration < server.timeLimit { return }
    }
    guard durations.count == Self.attempts else {
      return context.noteShortfall("\(durations.count) of \(Self.attempts) cancellations in time")
    }
    throw Violation(
      "\(call.phrase), with a time limit of \(server.timeLimit) and cancelled at once, ended after \(durations)"
    )
  }

  /// Returns the duration of the calls; nil if the machine was too busy to cancel them long before their time limit.
  private func checkCancellationOnce(
    _ call: NetworkCall, _ mode: NetworkProxy.Mode, writing name: String
  ) async throws -> Duration? {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(mode)
    let start = ContinuousClock.now
    let started = AtomicCounter()
    let tasks = (0..<20).map { _ in
      Task {
        started.increment()
        try await call.perform(on: engine, writing: name)
      }
    }
    while started.value < tasks.count { await Task.yield() }
    // At least one of them is in progress, and the others wait.
    await untilSomethingIsHeldBack()
    try await gather(0..<100) { _ in await Task.yield() }
    for task in tasks { task.cancel() }
    let isInTime = start.duration(to: .now) < server.timeLimit / 2
    var isUnknown = false
    for task in tasks {
      switch await task.result {
      case .success: throw Violation("\(call.phrase) returned although the server had not answered")
      case .failure(let error):
        let cause = (error as? CallFailure)?.error ?? error
        if cause is CancellationError { continue }
        let code = (cause as? StorageError)?.code
        // On a busy machine the time limit may expire before the engine notices the cancellation.
        let isOver = start.duration(to: .now) >= server.timeLimit
        if !isInTime || isOver, code == .unavailable { continue }
        try expect(code == .outcomeUnknown && !call.isRead, "\(call.phrase), cancelled, threw \(cause)")
        isUnknown = true
      }
    }
    let elapsed = start.duration(to: .now)
    // Twice, because the server may process received data late.
    for _ in 0..<2 {
      let contents = try await contents()
      try expect(
        isUnknown || contents[key(name)] == nil,
        "\(call.phrase) had taken effect, although each was cancelled before")
      try expect(contents[key("old")] == data("old"), "readAllDataAndKeys() did not return an existing entry")
      try await expectOwnAnswers()
      try await untilAvailable { try await $0.write(data("later"), key: key("later")) }
    }
    return isInTime ? elapsed : nil
  }
}

// Calls that have no separate check.

extension NetworkUnderTest {
  /// Fails if a call receives the answer to another one, which a connection may still hold if a call on it has ended
  /// without its answer.
  func expectOwnAnswers() async throws {
    // So many at once that every connection is used.
    try await gather(0..<2 * server.maximumConnections) { _ in
      let absent = try await untilAvailable { try await $0.read(key: key("absent")) }
      try expect(absent, is: nil, "after calls had been cancelled read(key:) of an absent key")
      let old = try await untilAvailable { try await $0.read(key: key("old")) }
      try expect(old, is: data("old"), "after calls had been cancelled read(key:) of an existing key")
    }
  }

  /// Begins reads while the answer to a cancelled one is outstanding. An engine that keeps the connection for them, and
  /// discards only what has arrived by then, returns that answer.
  func checkAnswersBehindCancelledRead() async throws {
    context.noteProgress()
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(.silent)
    let cancelled = Task { [engine] in _ = try await engine.read(key: key("old")) }
    await untilSomethingIsHeldBack()
    cancelled.cancel()
    // Rule C4 covers what it throws.
    _ = await cancelled.result
    // So many at once that every connection is used.
    let reads = (0..<2 * server.maximumConnections).map { _ in
      Task { [engine] in try await engine.read(key: key("absent")) }
    }
    // Waits only briefly, because all of them may share a connection.
    let end = ContinuousClock.now + server.timeLimit / 10
    while proxy.heldBackCount < 2, ContinuousClock.now < end { await letTimePass() }
    proxy.set(.open)
    for read in reads {
      do {
        try expect(
          try await read.value, is: nil,
          "while the answer to a cancelled call was outstanding, read(key:) of an absent key")
      } catch let failure as CallFailure {
        // On a busy machine the time limit may expire.
        guard (failure.error as? StorageError)?.code == .unavailable else { throw failure }
      }
    }
    try await expectOwnAnswers()
  }

  private struct CancelledEnd: Sendable {
    let number: Int
    let end: ContinuousClock.Instant
    /// Nil if the call returned.
    let error: (any Error)?
  }

  /// Makes every call that has no separate check, and opens an engine, while the server is silent, and cancels all of
  /// them.
  func checkAnyCancellation() async throws {
    var calls = anyCalls(key("old"), .silent)
    calls.append(
      AnyCall(name: "opening the engine", mayReturn: true) { _ in try await openAnother().release() })
    var uncertain: Set<CacheKey> = []
    // A server may have room for a hundred connections.
    let size = max(1, 64 / server.maximumConnections)
    for first in stride(from: 0, to: calls.count, by: size) {
      try await checkCancellation(of: Array(calls[first..<min(first + size, calls.count)]), &uncertain)
    }
  }

  /// Each call uses its own engine, so that none waits for another's connection. Repeats the calls that ended too late,
  /// because the machine may be busy.
  ///
  /// - Parameter uncertain: The keys of changes whose outcome is not known.
  private func checkCancellation(of calls: [AnyCall], _ uncertain: inout Set<CacheKey>) async throws {
    let present = key("old")
    var (slow, inTime): ([String: [Duration]], Int) = ([:], 0)
    for _ in 0..<4 * Self.attempts where inTime < Self.attempts {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("old"), key: present) }
      let engines = try await openOthers(calls.count)
      proxy.set(.silent)
      let (start, cancelled, ends) = try await cancelAll(calls, on: engines)
      let isInTime = start.duration(to: cancelled) < server.timeLimit / 2
      for end in ends {
        let call = calls[end.number]
        let isOver = start.duration(to: end.end) >= server.timeLimit
        if try isUnknown(call, after: end.error, mayBeLate: !isInTime || isOver), let changed = call.changed {
          uncertain.insert(changed)
        }
      }
      let found = try await contents()
      for other in engines { try await other.close() }
      try expect(found, onlyDiffersFrom: [present: data("old")], in: uncertain)
      guard isInTime else { continue }
      for end in ends {
        let (name, duration) = (calls[end.number].name, start.duration(to: end.end))
        // Otherwise the time limit might have ended the call.
        if duration < server.timeLimit { slow[name] = nil } else { slow[name, default: []].append(duration) }
      }
      inTime += 1
      slow = slow.filter { $0.value.count == inTime }
      if slow.isEmpty { return }
    }
    guard inTime == Self.attempts else {
      return context.noteShortfall("\(inTime) of \(Self.attempts) cancellations in time")
    }
    for (name, durations) in slow.sorted(by: { $0.key < $1.key }) {
      throw Violation(
        "\(name), with a time limit of \(server.timeLimit) and cancelled at once, ended after \(durations)")
    }
  }

  /// Makes the calls, and cancels all of them once they wait for the server.
  private func cancelAll(
    _ calls: [AnyCall], on engines: [EngineUnderTest]
  ) async throws -> (start: ContinuousClock.Instant, cancelled: ContinuousClock.Instant, ends: [CancelledEnd])
  {
    let start = ContinuousClock.now
    return try await withThrowingTaskGroup(of: CancelledEnd.self) { group in
      for number in calls.indices {
        let (call, engine) = (calls[number], number < engines.count ? engines[number] : self.engine)
        group.addTask { @concurrent in
          do {
            try await call.perform(engine)
            return CancelledEnd(number: number, end: .now, error: nil)
          } catch {
            return CancelledEnd(number: number, end: .now, error: error)
          }
        }
      }
      // Waits only briefly, because the engine may have nothing to send.
      while proxy.heldBackCount < calls.count, start.duration(to: .now) < server.timeLimit / 10 {
        await letTimePass()
      }
      group.cancelAll()
      let cancelled = ContinuousClock.now
      var ends: [CancelledEnd] = []
      for try await end in group { ends.append(end) }
      return (start, cancelled, ends)
    }
  }

  /// Whether the outcome of a cancelled call is unknown. Fails if it returned, or threw an error that is not allowed.
  ///
  /// - Parameter mayBeLate: Whether its time limit may have ended the call.
  private func isUnknown(_ call: AnyCall, after error: (any Error)?, mayBeLate: Bool) throws -> Bool {
    guard let error else {
      try expect(call.mayReturn, "\(call.name) returned although the server had not answered")
      return false
    }
    let cause = (error as? CallFailure)?.error ?? error
    if cause is CancellationError { return false }
    let code = (cause as? StorageError)?.code
    if mayBeLate, code == .unavailable { return false }
    try expect(code == .outcomeUnknown && call.changed != nil, "\(call.name), cancelled, threw \(cause)")
    return true
  }
}
