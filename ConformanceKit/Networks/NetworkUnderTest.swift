#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A call that is made while the network has a fault.
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

  /// - Parameter name: The key that it writes.
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

/// An engine that connects to its server through a proxy.
struct NetworkUnderTest: Sendable {
  let context: CheckContext
  let server: ConformanceServer
  let proxy: NetworkProxy
  let engine: EngineUnderTest

  /// Calls `body`, which may run repeatedly. Retries if the engine has not noticed yet that the network works, or the
  /// machine is busy. Gives up after the stall timeout.
  func untilAvailable<Result>(_ body: (EngineUnderTest) async throws -> Result) async throws -> Result {
    while true {
      do {
        return try await body(engine)
      } catch let failure as CallFailure {
        try expectNoSecret(in: failure)
        let code = (failure.error as? StorageError)?.code
        guard code == .unavailable || code == .outcomeUnknown else { throw failure }
        await letTimePass()
        try Task.checkCancellation()
      }
    }
  }

  /// The contents after the network works again, read by the same engine (rule N3).
  ///
  /// Data that was held back reaches the server first. A call whose error said that it had not happened must not take
  /// effect then.
  func contents() async throws -> [CacheKey: Data] {
    proxy.set(.open)
    let end = ContinuousClock.now + server.timeLimit
    while !proxy.hasPassedOn, ContinuousClock.now < end { await letTimePass() }
    return try contentsByKey(try await untilAvailable { try await $0.readAllDataAndKeys() })
  }

  /// Makes the call while the network has the fault. Repeats a call that took too long, because the machine may be
  /// busy.
  func checkFault(_ mode: NetworkProxy.Mode, _ call: NetworkCall) async throws {
    var mayHaveBeenApplied = false
    var durations: [Duration] = []
    for _ in 0..<Self.attempts {
      context.noteProgress()
      durations.append(try await checkFaultOnce(mode, call, &mayHaveBeenApplied))
      if durations.contains(where: { $0 < server.timeLimit * Self.timesOfTheLimit }) { return }
    }
    throw Violation("\(call.phrase), with a time limit of \(server.timeLimit), ended after \(durations)")
  }

  /// Returns the duration of the call.
  private func checkFaultOnce(
    _ mode: NetworkProxy.Mode, _ call: NetworkCall, _ mayHaveBeenApplied: inout Bool
  ) async throws -> Duration {
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(mode)
    let start = ContinuousClock.now
    async let outcome = outcome(of: call)
    // Other tasks, which do not use the engine, must be able to run meanwhile.
    try await gather(0..<100) { _ in await Task.yield() }
    let error = try await outcome
    let elapsed = start.duration(to: .now)
    guard let error else {
      // The byte that has passed may be the whole answer to a write, which has happened then.
      guard case .stalling = mode, !call.isRead else {
        throw Violation("\(call.phrase) returned although the server had not answered")
      }
      mayHaveBeenApplied = true
      let contents = try await contents()
      try expect(contents[key("new")] == data("new"), "\(call.phrase) returned, but has not taken effect")
      return elapsed
    }
    let isUnknown = error.code == .outcomeUnknown && !call.isRead
    try expect(error.code == .unavailable || isUnknown, "\(call.phrase) threw \(error)")
    mayHaveBeenApplied = mayHaveBeenApplied || isUnknown
    // Twice, because the server may process received data late.
    for _ in 0..<2 {
      let contents = try await contents()
      try expect(contents[key("old")] == data("old"), "an existing entry was lost")
      if !mayHaveBeenApplied {
        try expect(
          contents[key("new")] == nil,
          "\(call.phrase) had taken effect, although it threw unavailable")
      }
      try await untilAvailable { try await $0.write(data("later"), key: key("later")) }
    }
    return elapsed
  }

  private func outcome(of call: NetworkCall, on other: EngineUnderTest? = nil) async throws -> StorageError? {
    do {
      try await call.perform(on: other ?? engine)
      return nil
    } catch let failure as CallFailure {
      try expectNoSecret(in: failure)
      guard let error = failure.error as? StorageError else { throw failure }
      return error
    }
  }

  /// The maximum duration of a call as a multiple of its time limit. Determining the outcome after a lost answer may
  /// take as long as the call.
  static let timesOfTheLimit = 3
  /// How often a call may exceed that before it fails the check.
  static let attempts = 3

  /// Waits until an engine has sent data to the silent server. Waits only briefly, because the engine may have nothing
  /// to send.
  func untilSomethingIsHeldBack() async {
    let end = ContinuousClock.now + server.timeLimit / 10
    while !proxy.isHoldingBack, ContinuousClock.now < end { await letTimePass() }
  }

  /// Opens this many other engines, each with its own connection.
  func openOthers(_ count: Int) async throws -> [EngineUnderTest] {
    var engines: [EngineUnderTest] = []
    for _ in 0..<count {
      let other = try await untilAvailable { _ in try await openAnother() }
      // An engine may only connect when it is first used.
      _ = try await untilAvailable { _ in try await other.read(key: key("old")) }
      engines.append(other)
    }
    return engines
  }

  /// Makes every call that has no separate check while the network has a fault, all concurrently. Each uses its own
  /// engine, so that none waits for another's connection. Each call that took too long is repeated: see ``attempts``.
  func checkAnyCall(_ mode: NetworkProxy.Mode) async throws {
    let present = key("old")
    let calls = anyCalls(present, mode)
    var slow: [String: [Duration]] = [:]
    // A change whose outcome is unknown may happen later, too.
    var uncertain: Set<CacheKey> = []
    for attempt in 0..<Self.attempts {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("old"), key: present) }
      let engines = try await openOthers(calls.count)
      proxy.set(mode)
      let ends = try await gather(calls.indices) { [engines] number in
        let call = calls[number]
        let start = ContinuousClock.now
        let mayHaveBeenApplied = try await mayHaveBeenApplied(call, on: engines[number])
        return (call.name, start.duration(to: .now), mayHaveBeenApplied ? call.changed : nil)
      }
      let found = try await contents()
      for other in engines { try await other.close() }
      uncertain.formUnion(ends.compactMap { $0.2 })
      try expect(found, onlyDiffersFrom: [present: data("old")], in: uncertain)
      for (name, duration, _) in ends {
        if duration >= server.timeLimit * Self.timesOfTheLimit {
          slow[name, default: []].append(duration)
        } else {
          slow[name] = nil
        }
      }
      slow = slow.filter { $0.value.count == attempt + 1 }
      if slow.isEmpty { return }
    }
    for (name, durations) in slow.sorted(by: { $0.key < $1.key }) {
      throw Violation("\(name), with a time limit of \(server.timeLimit), ended after \(durations)")
    }
  }

  struct AnyCall: Sendable {
    let name: String
    /// The key that it writes or removes.
    var changed: CacheKey?
    /// Whether the call may return without the server.
    var mayReturn = false
    let perform: @Sendable (EngineUnderTest) async throws -> Void
  }

  /// A change of each kind, of the same key.
  var changeCalls: [AnyCall] {
    ChangeMethod.all(context.capabilities).map { method in
      AnyCall(name: method.call) { try await method.performAmongMany([(key("new"), data("new"))], in: $0) }
    }
  }

  /// The calls that have no separate check.
  ///
  /// - Parameter present: An existing key.
  func anyCalls(_ present: CacheKey, _ mode: NetworkProxy.Mode) -> [AnyCall] {
    let isTrickling = if case .trickling = mode { true } else { false }
    let isStalling = if case .stalling = mode { true } else { false }
    // An answer may be so short that it arrives in time: the answer to a call that returns no value may be complete
    // after one byte.
    let mayBeShort = isTrickling || isStalling
    var calls = ReadMethod.allCases.map { method in
      AnyCall(name: method.call, mayReturn: isTrickling || isStalling && !method.givesValues) {
        let found = try await method.found(of: [present], in: $0)
        // Another of the calls may have removed it.
        if !mayBeShort { return }
        try expect(
          found.isEmpty || found == [method.givesValues ? data("old") : nil], "\(method.call) was wrong")
      }
    }
    calls += [
      AnyCall(name: "remove(key:)", changed: present, mayReturn: mayBeShort) {
        try await $0.remove(key: present)
      },
      AnyCall(name: "remove(keys:)", changed: present, mayReturn: mayBeShort) {
        try await $0.remove(keys: [present])
      },
      AnyCall(name: "removeAllData()", changed: present, mayReturn: mayBeShort) {
        try await $0.removeAllData()
      },
      AnyCall(name: "verify()", mayReturn: true) { try await $0.verify() },
    ]
    if context.capabilities.contains(.changeFeed) {
      calls.append(AnyCall(name: "changes()", mayReturn: true) { _ = try await $0.changes() })
    }
    // More than the system accepts for a server that reads nothing, so that sending it waits.
    if case .silent = mode {
      let large = key("large")
      calls.append(
        AnyCall(name: "write(_:key:) of 8 MiB", changed: large) {
          try await $0.write(noise(8 << 20), key: large)
        })
    }
    return calls
  }

  /// Whether a change threw `outcomeUnknown`, or returned. Fails if a call returned that may not, or threw an error that
  /// is not allowed.
  private func mayHaveBeenApplied(_ call: AnyCall, on engine: EngineUnderTest) async throws -> Bool {
    do {
      try await call.perform(engine)
    } catch let failure as CallFailure {
      let code = (failure.error as? StorageError)?.code
      let isUnknown = call.changed != nil && code == .outcomeUnknown
      try expectNoSecret(in: failure)
      try expect(isUnknown || code == .unavailable, "\(call.name) threw \(failure.error)")
      return isUnknown
    }
    try expect(call.mayReturn, "\(call.name) returned although the server had not answered")
    return true
  }

  /// Opens an engine on a server that does not answer, and closes one that is open. Each call that took too long is
  /// repeated: see ``attempts``.
  func checkOpening(_ mode: NetworkProxy.Mode) async throws {
    for isOpen in [false, true] {
      let what = isOpen ? "close()" : "opening"
      var durations: [Duration] = []
      while durations.allSatisfy({ $0 >= server.timeLimit * Self.timesOfTheLimit }) {
        if durations.count == Self.attempts {
          throw Violation("\(what), with a time limit of \(server.timeLimit), ended after \(durations)")
        }
        context.noteProgress()
        proxy.set(.open)
        let other = isOpen ? try await untilAvailable { _ in try await openAnother() } : nil
        proxy.set(mode)
        let start = ContinuousClock.now
        do {
          switch (other, mode) {
          case (let other?, .silent): try await closeDuringCall(other)
          case (let other?, _): try await other.close()
          // An engine that only connects when it is first used does not wait here.
          case (.none, _): try await openAnother().close()
          }
        } catch let failure as CallFailure {
          let error = failure.error as? StorageError
          try expect(
            error?.code == .unavailable, "\(what) threw \(failure.error) while the server did not answer")
        }
        durations.append(start.duration(to: .now))
      }
    }
    proxy.set(.open)
  }

  /// Closes an engine while a call waits for the server, which must end as well.
  private func closeDuringCall(_ other: EngineUnderTest) async throws {
    async let outcome = outcome(of: .read, on: other)
    await untilSomethingIsHeldBack()
    try await other.close()
    guard let error = try await outcome else {
      throw Violation("read(key:), during close(), returned although the server had not answered")
    }
    try expect(
      error.code == .unavailable || error.code == .closed, "read(key:), during close(), threw \(error)")
  }

  func openAnother() async throws -> EngineUnderTest {
    try await context.open(through: proxy.port, to: server)
  }
}

/// Fails unless the contents are those expected, except for changes of some keys whose outcome is unknown.
func expect(
  _ found: [CacheKey: Data], onlyDiffersFrom expected: [CacheKey: Data], in uncertain: Set<CacheKey>
) throws {
  let differing = Set(found.keys).union(expected.keys).filter { found[$0] != expected[$0] }
  try expect(differing.isSubset(of: uncertain), "an existing entry was lost or changed, or another was there")
}
