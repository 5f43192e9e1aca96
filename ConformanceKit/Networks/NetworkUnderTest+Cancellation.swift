import StockroomCore

// Calls that are cancelled while the server does not answer: rules C4 and N1.

extension NetworkUnderTest {
  func checkCancellation(_ call: NetworkCall, _ mode: NetworkProxy.Mode = .silent) async throws {
    var durations: [Duration] = []
    for attempt in 0..<4 * Self.attempts where durations.count < Self.attempts {
      context.noteProgress()
      // The outcome of the writes of a late attempt may be unknown.
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
      try await untilAvailable { try await $0.write(data("later"), key: key("later")) }
    }
    return isInTime ? elapsed : nil
  }
}
