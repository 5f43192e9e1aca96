#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// What is called while the network does not work.
enum NetworkCall: String, CaseIterable, Sendable {
  case read, readAll = "read-all", readEntries = "read-entries", write, batch, imports = "import", transaction

  var phrase: String {
    switch self {
    case .read: "read(key:)"
    case .readAll: "readAllDataAndKeys()"
    case .readEntries: "readEntries(keys:)"
    case .write: "write(_:key:)"
    case .batch: "apply(_:)"
    case .imports: wayOfImporting.name
    case .transaction: "withTransaction(_:)"
    }
  }

  var needs: EngineCapabilities { self == .transaction ? .transactions : [] }

  var isRead: Bool { self == .read || self == .readAll || self == .readEntries }

  /// - Parameter name: The key of what it writes.
  func perform(on engine: EngineUnderTest, writing name: String = "new") async throws {
    switch self {
    case .read: _ = try await engine.read(key: key("old"))
    case .readAll: _ = try await engine.readAllDataAndKeys()
    case .readEntries: _ = try await engine.readEntries(keys: [key("old"), key("absent")])
    case .write: try await engine.write(data("new"), key: key(name))
    case .imports: try await wayOfImporting.write(engine, [(key(name), data("new"))])
    case .batch: try await engine.apply([.write(data("new"), key: key(name))])
    case .transaction:
      try await engine.withTransaction { try $0.write(data("new"), key: key(name)) }
    }
  }
}

/// An engine that reaches its server through a proxy.
struct NetworkUnderTest: Sendable {
  let context: CheckContext
  let server: ConformanceServer
  let proxy: NetworkProxy
  let engine: EngineUnderTest

  /// Calls `body`, which may be done twice, again if the engine has not noticed yet that the network works, or the machine is
  /// busy. The whole ends with the stall timeout.
  func untilAvailable<Result>(_ body: (EngineUnderTest) async throws -> Result) async throws -> Result {
    while true {
      do {
        return try await body(engine)
      } catch let failure as CallFailure {
        let code = (failure.error as? StorageError)?.code
        guard code == .unavailable || code == .outcomeUnknown else { throw failure }
        try Task.checkCancellation()
      }
    }
  }

  /// The contents, once the network works again: by the same engine (rule N3).
  ///
  /// What was held back reaches the server before: it may do then what the call said had not happened.
  private func contents() async throws -> [CacheKey: Data] {
    proxy.set(.open)
    let end = ContinuousClock.now + server.timeLimit
    while !proxy.hasPassedOn, ContinuousClock.now < end { await Task.yield() }
    return try contentsByKey(try await untilAvailable { try await $0.readAllDataAndKeys() })
  }

  /// Whether it ends in time is looked at again if it did not, since a busy machine takes its time too.
  func checkFault(_ mode: NetworkProxy.Mode, _ call: NetworkCall) async throws {
    var mayHaveHappened = false
    var durations: [Duration] = []
    for _ in 0..<Self.attempts {
      context.noteProgress()
      durations.append(try await checkFaultOnce(mode, call, &mayHaveHappened))
      if durations.contains(where: { $0 < server.timeLimit * Self.timesOfTheLimit }) { return }
    }
    throw Violation("\(call.phrase), with a time limit of \(server.timeLimit), ended after \(durations)")
  }

  /// Returns how long the call has taken.
  private func checkFaultOnce(
    _ mode: NetworkProxy.Mode, _ call: NetworkCall, _ mayHaveHappened: inout Bool
  ) async throws -> Duration {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(mode)
    let start = ContinuousClock.now
    async let outcome = outcome(of: call)
    // Tasks that have nothing to do with the engine.
    try await gather(0..<100) { _ in await Task.yield() }
    let error = try await outcome
    let elapsed = start.duration(to: .now)
    guard let error else {
      throw Violation("\(call.phrase) returned although the server could not be reached")
    }
    let isUnknown = error.code == .outcomeUnknown && !call.isRead
    try expect(error.code == .unavailable || isUnknown, "\(call.phrase) threw \(error)")
    mayHaveHappened = mayHaveHappened || isUnknown
    // Twice, as the server may take its time over what it has received.
    for _ in 0..<2 {
      let contents = try await contents()
      try expect(contents[key("old")] == data("old"), "an earlier entry was lost")
      if !mayHaveHappened {
        try expect(contents[key("new")] == nil, "\(call.phrase) had happened, although it threw unavailable")
      }
      try await untilAvailable { try await $0.write(data("later"), key: key("later")) }
    }
    return elapsed
  }

  private func outcome(of call: NetworkCall) async throws -> StorageError? {
    do {
      try await call.perform(on: engine)
      return nil
    } catch let failure as CallFailure {
      guard let error = failure.error as? StorageError else { throw failure }
      return error
    }
  }

  /// How many times its limit a call is given: what is found out about a lost answer takes as long as the call.
  private static let timesOfTheLimit = 3
  /// How often a call may be late before that is what it is.
  private static let attempts = 3

  func checkCancellation(_ call: NetworkCall) async throws {
    var durations: [Duration] = []
    for attempt in 0..<4 * Self.attempts where durations.count < Self.attempts {
      context.noteProgress()
      // What became of the writes of an attempt that was late may be unknown.
      guard let duration = try await checkCancellationOnce(call, writing: "new \(attempt)") else { continue }
      durations.append(duration)
      // Later, the limit might have ended it.
      if duration < server.timeLimit { return }
    }
    guard durations.count == Self.attempts else {
      return context.noteShortfall("\(durations.count) of \(Self.attempts) cancellations in time")
    }
    throw Violation(
      "\(call.phrase), with a time limit of \(server.timeLimit) and cancelled at once, ended after \(durations)"
    )
  }

  /// Returns how long the calls have taken; nil if the machine was too busy to cancel them long before their limit.
  private func checkCancellationOnce(_ call: NetworkCall, writing name: String) async throws -> Duration? {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(.silent)
    let start = ContinuousClock.now
    let started = AtomicCounter()
    let tasks = (0..<20).map { _ in
      Task {
        started.increment()
        try await call.perform(on: engine, writing: name)
      }
    }
    while started.value < tasks.count { await Task.yield() }
    // One of them at least is under way, and the others wait.
    await untilSomethingIsHeldBack()
    try await gather(0..<100) { _ in await Task.yield() }
    for task in tasks { task.cancel() }
    let isInTime = start.duration(to: .now) < server.timeLimit / 2
    var isUnknown = false
    for task in tasks {
      switch await task.result {
      case .success: throw Violation("\(call.phrase) returned although the server was silent")
      case .failure(let error):
        let cause = (error as? CallFailure)?.error ?? error
        if cause is CancellationError { continue }
        let code = (cause as? StorageError)?.code
        if !isInTime, code == .unavailable { continue }
        try expect(code == .outcomeUnknown && !call.isRead, "\(call.phrase), cancelled, threw \(cause)")
        isUnknown = true
      }
    }
    let elapsed = start.duration(to: .now)
    // Twice, as the server may take its time over what it has received.
    for _ in 0..<2 {
      let contents = try await contents()
      try expect(
        isUnknown || contents[key(name)] == nil,
        "\(call.phrase) had happened, although each was cancelled before")
      try await untilAvailable { try await $0.write(data("later"), key: key("later")) }
    }
    return isInTime ? elapsed : nil
  }

  /// Waits until an engine has sent something to the silent server, for a moment at most: it may not have to.
  func untilSomethingIsHeldBack() async {
    let end = ContinuousClock.now + server.timeLimit / 10
    while !proxy.isHoldingBack, ContinuousClock.now < end { await Task.yield() }
  }

  /// Many tasks count, each under keys of its own, while something happens to the network again and again.
  func checkLoad(
    rounds: Int, _ fault: @escaping @Sendable (NetworkUnderTest) async throws -> Void
  ) async throws {
    let counters = MutexProtected<[Int: NetworkCounter]>([:])
    let acknowledged = AtomicCounter()
    try await whileRunning(
      {
        for _ in 0..<rounds {
          let before = acknowledged.value
          // Until the tasks have got on, by the same engine.
          while acknowledged.value < before + 20 { try await Task.sleep(for: .milliseconds(1)) }
          context.noteProgress()
          try await fault(self)
        }
      }, readerCount: 64
    ) { task in
      var counter = counters.withLock { $0[task] } ?? NetworkCounter(task: task)
      do {
        try await engine.count(counter.next, under: counter.key)
        counter.acknowledge()
        acknowledged.increment()
      } catch let failure as CallFailure {
        switch (failure.error as? StorageError)?.code {
        case .outcomeUnknown?: counter.doubt()
        case .unavailable?, .conflict?: counter.fail()
        default: throw failure
        }
      }
      counters.withLock { [counter] in $0[task] = counter }
    }
    let contents = try await contents()
    for counter in counters.withLock(\.values) { try counter.check(contents) }
  }

  func check(_ refusal: ConformanceServer.Refusal) async throws {
    do {
      let engine = try await refusal.makeEngine(context.place, proxy.port)
      _ = try await engine.read(key: key("k"))
      throw Violation("with \(refusal.reason), the engine was opened and read from")
    } catch let error as StorageError {
      try expect(error.code == refusal.code, "with \(refusal.reason), opening threw \(error)")
      if let secret = refusal.secret {
        try expect(!"\(error)".contains(secret), "with \(refusal.reason), the error contained what is secret")
        try expect(
          !String(reflecting: error).contains(secret),
          "with \(refusal.reason), the error contained what is secret")
      }
    } catch {
      if error is Violation { throw error }
      throw Violation("with \(refusal.reason), opening threw \(shortened(String(describing: error)))")
    }
  }
}

/// The numbers that one task has written under its keys, or may have written.
private struct NetworkCounter: Sendable {
  let task: Int
  /// The number to write next.
  private(set) var next = 1
  /// For each key, from the last number that was acknowledged to the last that may have been written; 0 stands for none.
  private(set) var possible: [CacheKey: ClosedRange<Int>] = [:]

  init(task: Int) { self.task = task }

  /// Where to write the next number. Every second one has the same key: what is written late is seen there, over what came after
  /// it. The others have eight keys in turn: what is lost is seen there, although the task has gone on.
  var key: CacheKey {
    StockroomCore.CacheKey(
      verbatim: next.isMultiple(of: 2) ? "counter-\(task)" : "counter-\(task)-\(next / 2 % 8)")
  }

  mutating func acknowledge() {
    possible[key] = next...next
    next += 1
  }

  mutating func doubt() {
    possible[key] = (possible[key]?.lowerBound ?? 0)...next
    next += 1
  }

  mutating func fail() {
    possible[key] = possible[key] ?? 0...0
    next += 1
  }

  /// Whether all that was acknowledged is there, and nothing that cannot be.
  func check(_ contents: [CacheKey: Data]) throws {
    for (key, possible) in possible {
      let found = contents[key].flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
      try expect(
        possible.contains(found),
        "the number under \(key) was \(found); \(possible.lowerBound) was acknowledged last, and up to "
          + "\(possible.upperBound) may have been written (0 stands for none)")
    }
  }
}

extension EngineUnderTest {
  /// Writes the number: in a transaction if there are any, and otherwise alone.
  fileprivate func count(_ number: Int, under key: CacheKey) async throws {
    guard capabilities.contains(.transactions) else {
      return try await write(data("\(number)"), key: key)
    }
    try await withTransaction { transaction in
      _ = try transaction.read(key: key)
      try transaction.write(data("\(number)"), key: key)
    }
  }
}
