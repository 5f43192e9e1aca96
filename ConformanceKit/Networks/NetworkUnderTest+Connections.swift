#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Checks of connections for feeds and for cancelled calls.

extension NetworkUnderTest {
  /// This many streams of changes, if the engine has a feed; fewer once it has more connections than allowed.
  func subscribe(_ count: Int) async throws -> [StorageChanges] {
    var streams: [StorageChanges] = []
    guard context.capabilities.contains(.changeFeed) else { return streams }
    while streams.count < count, proxy.mostConnections <= server.maximumConnections {
      streams.append(try await untilAvailable { try await $0.changes() })
      context.noteProgress()
    }
    return streams
  }

  /// Ends all connections of the engine and changes something through another one before it can reconnect; then writes
  /// again after it has reconnected. An engine that only queries new entries after reconnecting misses removals.
  ///
  /// - Parameter fault: Another fault that happens while it is disconnected.
  func checkChanges(while fault: () async throws -> Void = {}) async throws {
    let passage = try NetworkProxy(to: server.address)
    defer { passage.close() }
    let direct = try await context.untilReached { try await context.open(through: passage.port, to: server) }
    defer { direct.release() }
    let subscriber = try await untilAvailable { try await ChangeSubscriber(to: $0, context) }
    for (round, method) in [ChangeMethod.write, .remove, .removeAll].enumerated() {
      context.noteProgress()
      let (missed, later) = (key("\(round) while it was cut"), key("\(round) afterwards"))
      if method.removes {
        try await perform(.write, missed, by: direct)
        try await subscriber.expectCovered(
          [missed], "a write by another engine before the connection was cut")
      }
      proxy.set(.away)
      try await fault()
      try await perform(method, missed, by: direct)
      proxy.set(.open)
      try await subscriber.expectCovered(
        [missed], "\(method.call) by another engine while the connection was cut")
      try await perform(.write, later, by: direct)
      try await subscriber.expectCovered(
        [later], "a write by another engine after an element had come since the connection was cut")
    }
  }

  /// Writes or removes the key as soon as the server is available.
  private func perform(_ method: ChangeMethod, _ key: CacheKey, by other: EngineUnderTest) async throws {
    let network = NetworkUnderTest(context: context, server: server, proxy: proxy, engine: other)
    try await network.untilAvailable { try await method.perform([(key, data("v"))], in: $0) }
  }

  /// Cancels more calls than there may be connections, one after the other, while they wait for a silent server.
  func checkConnectionsOfCancelledCalls() async throws {
    // Each connection may need another one to send the server a cancellation.
    let limit = 2 * server.maximumConnections
    for _ in 0..<(limit + 3) {
      context.noteProgress()
      try await untilAvailable { _ = try await $0.read(key: key("k")) }
      proxy.set(.silent)
      let task = Task { [engine] in _ = try await engine.read(key: key("k")) }
      await untilSomethingIsHeldBack()
      task.cancel()
      // Rule N1 covers what it throws.
      _ = await task.result
      proxy.set(.open)
      let most = proxy.mostConnections
      try expect(
        most <= limit,
        "there were \(most) connections at the same time after calls had been cancelled one by one; the "
          + "maximum is \(server.maximumConnections), plus as many that ask the server to cancel")
    }
  }

  /// Makes every kind of call, each more often than there may be connections, while the server is silent, so that no
  /// call returns its connection to another one.
  func checkConnectionsOfAnyCall() async throws {
    let limit = server.maximumConnections
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    let calls = changeCalls + anyCalls(key("old"), .open)
    proxy.set(.silent)
    let start = ContinuousClock.now
    let tasks = (0...limit).flatMap { _ in
      calls.map { call in Task { [engine] in try await call.perform(engine) } }
    }
    // Waits only briefly, because the calls of an engine with a bounded number of connections wait for each other.
    while proxy.mostConnections <= limit, start.duration(to: .now) < server.timeLimit / 10 {
      await letTimePass()
    }
    let (most, elapsed) = (proxy.mostConnections, start.duration(to: .now))
    proxy.set(.open)
    // Rule N1 covers what they throw.
    for task in tasks { _ = await task.result }
    context.noteProgress()
    // If calls have timed out, each connection may have needed another one to ask the server to cancel.
    if elapsed >= server.timeLimit / 2 { return context.noteShortfall("calls of any kind, not in time") }
    try expect(
      most <= limit,
      "while calls of every kind waited, there were \(most) connections, and the maximum is \(limit)")
  }

  /// Has the server end all connections while the engine has several and no call is in progress, and then reads.
  ///
  /// The server is reachable at once, so an engine should usually succeed. On a busy machine, it may occasionally fail.
  func checkReadsAfterLosses() async throws {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    let rounds = 8
    var (failures, successes): ([CallFailure], Int) = ([], 0)
    for round in 0..<rounds {
      context.noteProgress()
      try await makeConnections()
      proxy.endConnections()
      let call = round.isMultiple(of: 2) ? NetworkCall.read : .readAll
      do {
        try await call.perform(on: engine)
        successes += 1
      } catch let failure as CallFailure {
        guard (failure.error as? StorageError)?.code == .unavailable else { throw failure }
        // If a new engine takes too long as well, the machine is busy or the server is slow.
        if try await context.isReachedSoon(server, through: proxy.port) { failures.append(failure) }
      }
    }
    if failures.count > rounds / 2, let first = failures.first {
      throw Violation(
        "after the server had ended all connections and was reachable, \(first), in \(failures.count) of "
          + "\(rounds) rounds"
      )
    }
    // Otherwise every call may take too long here.
    guard successes > rounds / 2 else { return }
    for method in ReadMethod.allCases { try await checkReadAfterLosses(method) }
  }

  /// Fails if the method does not succeed in one of several attempts after the server has ended all connections.
  private func checkReadAfterLosses(_ method: ReadMethod) async throws {
    var last: CallFailure?
    for _ in 0..<4 {
      context.noteProgress()
      // The connection that it will use.
      _ = try await untilAvailable { try await method.found(of: [key("old")], in: $0) }
      proxy.endConnections()
      do {
        let isFound = try await method.finds(data("old"), under: key("old"), in: engine)
        return try expect(isFound, "after the server had ended all connections, \(method.call) was wrong")
      } catch let failure as CallFailure {
        guard (failure.error as? StorageError)?.code == .unavailable else { throw failure }
        // If a new engine takes too long as well, the machine is busy or the server is slow.
        guard try await context.isReachedSoon(server, through: proxy.port) else { return }
        last = failure
      }
    }
    guard let last else { return }
    throw Violation(
      "after the server had ended all connections and was reachable, \(last), in each of 4 rounds")
  }

  /// Has the engine open as many connections for reads as it uses.
  private func makeConnections() async throws {
    // While the server is silent, no read releases its connection to another.
    proxy.set(.silent)
    let reads = (0..<4 * server.maximumConnections).map { number in
      Task { [engine] in
        try await (number.isMultiple(of: 2) ? NetworkCall.readAll : .read).perform(on: engine)
      }
    }
    await untilSomethingIsHeldBack()
    try await gather(0..<100) { _ in await Task.yield() }
    proxy.set(.open)
    // Rule N1 covers whether they may wait for so long.
    for read in reads { _ = await read.result }
  }

  /// Has the server end all connections repeatedly, and checks that the engine closes its side of them, since each uses
  /// a descriptor.
  func checkLostConnectionsAreClosed() async throws {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    let stream = try await subscribe(1)
    defer { withExtendedLifetime(stream) {} }
    for round in 0..<(server.maximumConnections + 3) {
      context.noteProgress()
      try await makeConnections()
      proxy.endServerSides()
      try await untilAvailable { _ = try await $0.read(key: key("old")) }
      try await untilAvailable { try await $0.write(data("\(round)"), key: key("new")) }
    }
    try await refuseConnections()
    try await expectFewConnections("after the server had ended all of them repeatedly, and refused new ones")
  }

  /// Has the server end all connections, and each new one at once, until there were more than the engine may have.
  private func refuseConnections() async throws {
    let wanted = server.maximumConnections + 4
    proxy.set(.refusing)
    proxy.endServerSides()
    // An engine may try to connect once in each call, or repeatedly.
    for _ in 0..<wanted where proxy.refusalCount < wanted {
      context.noteProgress()
      // Rule N1 covers what it throws.
      do { _ = try await engine.read(key: key("old")) } catch is CallFailure {}
    }
    proxy.set(.open)
    try await untilAvailable { _ = try await $0.read(key: key("old")) }
  }

  /// Freezes all connections of the engine permanently, and calls the engine until it has replaced them. How long it
  /// may take to notice is not limited, except by the stall timeout.
  func checkHalfOpenConnections() async throws {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    _ = try await untilAvailable { try await $0.readAllDataAndKeys() }
    proxy.freeze()
    try await untilAvailable { try await $0.write(data("new"), key: key("new")) }
    let found = try await untilAvailable { try await $0.read(key: key("new")) }
    try expect(found, is: data("new"), "read(key:) on a new connection")
  }

  /// Lets calls time out repeatedly.
  func checkSilentConnectionsAreClosed() async throws {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    let calls = [NetworkCall.read, .readAll, .write]
    for _ in 0..<3 {
      context.noteProgress()
      proxy.set(.silent)
      try await gather(0..<server.maximumConnections) { number in
        // Rule N1 covers what it throws.
        do { try await calls[number % calls.count].perform(on: engine) } catch is CallFailure {}
      }
      proxy.set(.open)
      try await untilAvailable { _ = try await $0.read(key: key("old")) }
    }
    try await expectFewConnections("after calls had repeatedly timed out")
  }

  /// Waits until the engine has closed unused connections, which it may do in the background.
  private func expectFewConnections(_ when: String) async throws {
    var limit = RunningTimeLimit(max(server.timeLimit, .seconds(3)))
    while proxy.connectionCount > server.maximumConnections, !limit.isOver() { await letTimePass() }
    let count = proxy.connectionCount
    try expect(
      count <= server.maximumConnections,
      "\(when), the engine had not closed \(count) connections; the maximum is \(server.maximumConnections)"
    )
  }
}

extension CheckContext {
  /// Runs the body, and repeats it if the engine's time limit expires before the server is reached, as on a busy
  /// machine.
  func untilReached<Result>(_ body: () async throws -> Result) async throws -> Result {
    for _ in 0..<10 {
      do {
        return try await body()
      } catch let failure as CallFailure {
        let code = (failure.error as? StorageError)?.code
        guard code == .unavailable || code == .outcomeUnknown else { throw failure }
        try Task.checkCancellation()
        noteProgress()
      }
    }
    return try await body()
  }

  /// Whether a new engine without lost connections connects and reads long before its time limit.
  func isReachedSoon(_ server: ConformanceServer, through port: UInt16) async throws -> Bool {
    let start = ContinuousClock.now
    do {
      let engine = try await open(through: port, to: server)
      _ = try await engine.read(key: key("old"))
      let time = start.duration(to: .now)
      try await close(engine)
      return time < server.timeLimit / 2
    } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .unavailable {
      return false
    }
  }
}
