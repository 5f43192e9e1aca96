#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Answers that arrive in pieces, in part, or for many calls not at all.

extension NetworkUnderTest {
  /// Reads in every way, and receives changes, while data arrives one byte at a time.
  func checkDripping() async throws {
    proxy.set(.dripping)
    let entries = entries(keys(8))
    // On a busy machine, each byte may have to wait for all other running programs.
    try await untilAvailable { try await $0.write(entries) }
    try expect(
      try await untilAvailable { try await $0.read(keys: keys(8)) }, is: entries.map(\.data), "read(keys:)")
    for method in ReadMethod.allCases {
      context.noteProgress()
      let wanted = method.isOfOneKey ? Array(entries.prefix(1)) : entries
      let found = try await untilAvailable { try await method.found(of: wanted.map(\.key), in: $0) }
      try expect(found, areOf: wanted, method)
    }
    guard context.capabilities.contains(.changeFeed) else { return }
    let passage = try NetworkProxy(to: server.address)
    defer { passage.close() }
    let direct = try await context.untilReached { try await context.open(through: passage.port, to: server) }
    defer { direct.release() }
    let subscriber = try await untilAvailable { try await ChangeSubscriber(to: $0, context) }
    try await context.untilReached { try await direct.write(data("v"), key: key("by another")) }
    try await subscriber.expectCovered([key("by another")], "a write by another engine")
  }

  /// Cuts the connection in the middle of the answer to every kind of read. The part that has arrived is not the answer.
  func checkCutReads() async throws {
    let all = entries(keys(40))
    try await untilAvailable { try await $0.write(all) }
    for method in ReadMethod.allCases {
      let wanted = method.isOfOneKey ? Array(all.prefix(1)) : all
      let read = { @Sendable (engine: EngineUnderTest) in
        try await method.found(of: wanted.map(\.key), in: engine)
      }
      for quarter in 1...3 {
        context.noteProgress()
        // The first one may have to connect.
        _ = try await untilAvailable(read)
        _ = proxy.takeCounts()
        try expect(try await untilAvailable(read), areOf: wanted, method)
        let length = proxy.takeCounts()[.toEngine, default: 0]
        if length < 2 { break }
        proxy.cut(after: max(1, length * quarter / 4), .toEngine, willCut: {}, onCut: {})
        defer { proxy.endCut() }
        do {
          try expect(try await read(engine), areOf: wanted, method)
        } catch let failure as CallFailure {
          // Other checks cover that it is read again.
          guard (failure.error as? StorageError)?.code == .unavailable else { throw failure }
        }
      }
    }
  }

  /// Makes many more calls at once than there are connections while the server is silent. The time limit of a call
  /// includes the time for which it waits for others. Repeats calls that took too long, because the machine may be busy.
  func checkSilentCrowd() async throws {
    let calls: [NetworkCall] = [.read, .write, .readAll, .batch]
    let count = 8 * server.maximumConnections
    var durations: [Duration] = []
    for _ in 0..<Self.attempts {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
      proxy.set(.silent)
      let ends = try await gather(0..<count) { [engine] number in
        let start = ContinuousClock.now
        // Other checks cover what they throw.
        do { try await calls[number % calls.count].perform(on: engine) } catch is CallFailure {}
        return start.duration(to: .now)
      }
      proxy.set(.open)
      let longest = ends.max() ?? .zero
      if longest < server.timeLimit * Self.timesOfTheLimit { return }
      durations.append(longest)
    }
    throw Violation(
      "the longest of \(count) simultaneous calls, with a time limit of \(server.timeLimit), ended after "
        + "\(durations)")
  }
}

extension NetworkUnderTest {
  /// Makes the server silent during the body of a transaction, which then reads. Repeats a transaction that took too
  /// long, because the machine may be busy.
  func checkSilentBody() async throws {
    var mayHaveBeenApplied = false
    var durations: [Duration] = []
    for _ in 0..<Self.attempts {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
      let start = ContinuousClock.now
      do {
        try await becomeSilentInBody()
        throw Violation("withTransaction(_:) returned although the server had not answered")
      } catch let failure as CallFailure {
        let code = (failure.error as? StorageError)?.code
        try expect(code == .unavailable || code == .outcomeUnknown, "a transaction threw \(failure.error)")
        mayHaveBeenApplied = mayHaveBeenApplied || code == .outcomeUnknown
      }
      durations.append(start.duration(to: .now))
      let contents = try await contents()
      try expect(contents[key("old")] == data("old"), "an existing entry was lost")
      try expect(
        mayHaveBeenApplied || contents[key("new")] == nil,
        "withTransaction(_:) had taken effect, although it threw unavailable")
      if durations.contains(where: { $0 < server.timeLimit * Self.timesOfTheLimit }) { return }
    }
    throw Violation(
      "withTransaction(_:), with a time limit of \(server.timeLimit), ended after \(durations), when the server "
        + "had become silent during its body")
  }
}

extension NetworkUnderTest {
  /// Makes the server silent during the body of a transaction, which then reads and writes.
  ///
  /// - Parameter note: Called when the server is silent.
  private func becomeSilentInBody(
    writing name: String = "new", _ note: @escaping @Sendable () -> Void = {}
  ) async throws {
    try await engine.withTransaction { [proxy] transaction in
      _ = try transaction.read(key: key("old"))
      proxy.set(.silent)
      note()
      // An engine may have read it already.
      _ = try transaction.read(key: key("absent"))
      try transaction.write(data("new"), key: key(name))
    }
  }

  /// Cancels a transaction whose body waits for the silent server. Repeats it if it ended too late, because the machine
  /// may be busy.
  func checkCancelledBody() async throws {
    var durations: [Duration] = []
    for attempt in 0..<4 * Self.attempts where durations.count < Self.attempts {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
      let start = ContinuousClock.now
      // Another key each time, because a commit with an unknown outcome may happen later.
      let (isSilent, name) = (Flag(), "new \(attempt)")
      let (error, isInTime) = try await withThrowingTaskGroup(of: (any Error)?.self) { group in
        group.addTask { @concurrent in
          do {
            try await becomeSilentInBody(writing: name) { isSilent.set() }
            return nil
          } catch {
            return error
          }
        }
        while !isSilent.isSet, start.duration(to: .now) < server.timeLimit / 2 { await letTimePass() }
        await untilSomethingIsHeldBack()
        group.cancelAll()
        let isInTime = start.duration(to: .now) < server.timeLimit / 2
        return (try await group.next() ?? nil, isInTime)
      }
      let elapsed = start.duration(to: .now)
      guard let error else {
        throw Violation("withTransaction(_:) returned although the server had not answered")
      }
      let cause = (error as? CallFailure)?.error ?? error
      let code = (cause as? StorageError)?.code
      // On a busy machine the time limit may expire before the engine notices the cancellation.
      let mayBeLate = !isInTime || elapsed >= server.timeLimit
      try expect(
        cause is CancellationError || code == .outcomeUnknown || mayBeLate && code == .unavailable,
        "withTransaction(_:), cancelled during its body, threw \(cause)")
      let contents = try await contents()
      try expect(contents[key("old")] == data("old"), "an existing entry was lost")
      try expect(
        code == .outcomeUnknown || contents[key(name)] == nil,
        "withTransaction(_:) had taken effect, although it was cancelled before")
      guard isInTime else { continue }
      durations.append(elapsed)
      // Otherwise the time limit might have ended the call.
      if elapsed < server.timeLimit { return }
    }
    guard durations.count == Self.attempts else {
      return context.noteShortfall("\(durations.count) of \(Self.attempts) cancellations in time")
    }
    throw Violation(
      "withTransaction(_:), with a time limit of \(server.timeLimit) and cancelled during its body, ended after "
        + "\(durations)")
  }
}

extension NetworkUnderTest {
  /// Fails if one kind of call keeps failing after the server has come back, although others have succeeded.
  func expectEveryCallWorks() async throws {
    for call in changeCalls + anyCalls(key("old"), .open) {
      // A call may take as long as its time limit, and an engine may wait before it connects again.
      var limit = RunningTimeLimit(context.timeout(atMost: .seconds(60)), longestInterval: .seconds(1))
      context.noteProgress()
      while true {
        do {
          try await call.perform(engine)
          break
        } catch let failure as CallFailure {
          let code = (failure.error as? StorageError)?.code
          guard code == .unavailable || code == .outcomeUnknown else { throw failure }
          if limit.isOver() {
            throw Violation("after other calls had reached the server again, \(failure), repeatedly")
          }
          await letTimePass()
        }
      }
    }
  }
}

/// Fails unless the method has found exactly the values of these entries, in any order.
private func expect(
  _ found: [Data?], areOf entries: [(key: CacheKey, data: Data)], _ method: ReadMethod
) throws {
  let wanted = entries.map { method.givesValues ? $0.data : nil }
  try expect(
    found.hasSameElements(as: wanted),
    "\(method.call) found \(describe(found)) of \(entries.count) entries")
}
