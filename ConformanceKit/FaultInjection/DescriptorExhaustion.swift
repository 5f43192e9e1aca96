import Foundation
import StockroomCore

/// Checks an engine in a process with few or no free file descriptors. Requires a separate process.
struct DescriptorExhaustion: CheckTask {
  enum Phase: String, Codable, Sendable {
    /// While the engine is being opened.
    case opening
    /// After the engine has been open for a while.
    case using
  }

  let place: URL
  let script: StoreScript
  let phase: Phase

  private static let left = [0, 1, 2, 3, 4, 6, 8]

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    var expected = script.contents()
    for left in Self.left {
      let when = "with \(left) file descriptors left"
      switch phase {
      case .opening:
        try note("opening \(when)")
        try await open(left, when, expected, makeEngine)
      case .using:
        try note("using the engine \(when)")
        try await use(left, when, &expected, makeEngine)
      }
      try note("opening after having been \(when)")
      let engine = EngineUnderTest(try await makeEngine(place))
      try await expectAll(expected, in: engine, "after opening \(when)")
      try await engine.close()
      engine.release()
    }
  }

  private func open(
    _ left: Int, _ when: String, _ expected: [CacheKey: Data],
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws {
    let hold = try DescriptorHold(leaving: left)
    defer { hold.release() }
    do {
      let engine = EngineUnderTest(try await makeEngine(place))
      try await look(for: expected, in: engine, when)
      // Closing may need a descriptor too.
      _ = try await refusal(of: engine, when) { try await $0.close() }
      engine.release()
    } catch let violation as Violation {
      throw violation
    } catch {
      let error = (error as? CallFailure)?.error ?? error
      try classify(error, of: "opening", when)
      let text = String(describing: error)
      try expect(
        text.contains(place.lastPathComponent),
        "\(when), opening threw an error that does not name the path: \(shortened(text))")
    }
  }

  private func use(
    _ left: Int, _ when: String, _ expected: inout [CacheKey: Data],
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    let hold = try DescriptorHold(leaving: left)
    defer { hold.release() }
    try await look(for: expected, in: engine, when)
    var subscriber: ChangeSubscriber?
    if engine.capabilities.contains(.changeFeed) {
      _ = try await refusal(of: engine, when) {
        subscriber = try await ChangeSubscriber(to: $0, timeout: .seconds(30))
      }
    }
    let (one, many) = (key("written \(when)"), keys(3, prefix: "\(left) left "))
    let entries = [(key: one, data: data("v"))] + many.map { (key: $0, data: data("w")) }
    var isWritten = try await refusal(of: engine, when) { try await $0.write(data("v"), key: one) } == nil
    isWritten =
      try await refusal(of: engine, when) { try await $0.write(Array(entries.dropFirst())) } == nil
      && isWritten
    hold.release()
    // The refused entries may or may not be there; they can be written now.
    if !isWritten { try await engine.write(entries) }
    for entry in entries { expected[entry.key] = entry.data }
    if let subscriber, let other = try await openedUnlessLocked(makeEngine) {
      let byOther = key("by another engine, \(left) left")
      try await other.write(data("v"), key: byOther)
      expected[byOther] = data("v")
      try await expectHeard(byOther, by: subscriber, when)
      try await other.close()
      other.release()
    }
    try await expectAll(expected, in: engine, "\(when) before")
    try await engine.close()
    engine.release()
  }

  private func openedUnlessLocked(
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> EngineUnderTest? {
    do {
      return EngineUnderTest(try await makeEngine(place))
    } catch {
      let cause = (error as? CallFailure)?.error ?? error
      if (cause as? StorageError)?.code == .locked { return nil }
      throw error
    }
  }

  /// Fails unless the subscriber receives the change. An engine that cannot observe changes must throw from
  /// `changes()`.
  private func expectHeard(_ key: CacheKey, by subscriber: ChangeSubscriber, _ when: String) async throws {
    do {
      try await subscriber.expectCovered([key], "a write by another engine")
    } catch let violation as Violation {
      throw Violation("changes() returned \(when), and later \(violation)", rule: .x1)
    }
  }

  /// Fails if a read returns a wrong result instead of throwing.
  private func look(for expected: [CacheKey: Data], in engine: EngineUnderTest, _ when: String) async throws {
    for (key, value) in expected.sorted(by: { $0.key < $1.key }) {
      _ = try await refusal(of: engine, when) {
        try expect(try await $0.read(key: key), is: value, "\(when), read(key:) of \(key)")
      }
    }
    // A process without descriptors ends soon: see checkWithoutDescriptors(_:).
    let (all, some) = (expected.keys.sorted(), expected.keys.sorted().prefix(3))
    for method in ReadMethod.allCases where method != .read {
      _ = try await refusal(of: engine, when) {
        let keys = method.isOfOneKey ? Array(some) : all
        let found = try await method.found(of: keys, in: $0)
        try expect(found.count, is: keys.count, "\(when), the number of entries that \(method.call) found")
        if !method.givesValues { return }
        try expect(
          Set(found) == Set(expected.values.map(Optional.init)),
          "\(when), \(method.call) returned wrong values")
      }
    }
    _ = try await refusal(of: engine, when) { try await $0.verify() }
  }

  private func refusal(
    of engine: EngineUnderTest, _ when: String, _ call: (EngineUnderTest) async throws -> Void
  ) async throws -> CallFailure? {
    do {
      try await call(engine)
      return nil
    } catch let failure as CallFailure {
      try classify(failure.error, of: failure.call, when)
      return failure
    }
  }

  /// Fails unless the error is a `StorageError` whose code fits exhausted descriptors.
  private func classify(_ error: any Error, of call: String, _ when: String) throws {
    guard let error = error as? StorageError else {
      throw Violation(
        "\(when), \(call) threw \(shortened(String(describing: error))), which is not a StorageError")
    }
    try expect(
      ![.corrupted, .closed, .invalidKey, .unsupported].contains(error.code),
      "\(when), \(call) threw \(error), whose code does not fit the cause")
  }

  private func expectAll(_ expected: [CacheKey: Data], in engine: EngineUnderTest, _ when: String)
    async throws
  {
    for (key, value) in expected {
      try expect(try await engine.read(key: key), is: value, "\(when), read(key:) of \(key)")
    }
    try expect(try await engine.keyCount(), is: expected.count, "\(when), keyCount()")
  }
}

extension CheckContext {
  /// Uses up the descriptors of a separate process, in the given phase.
  ///
  /// On Linux, the library that runs Swift's tasks opens a file once a second to check its threads, and ends the
  /// process if it cannot. After such an end, the check is repeated in a new process, at most twice. An engine that
  /// traps fails each time.
  func checkWithoutDescriptors(_ phase: DescriptorExhaustion.Phase) async throws {
    for attempt in 1... {
      let worker = try startWorker()
      let place = place.appending(path: "\(attempt)", directoryHint: .isDirectory)
      _ = try await ClosedStore(in: self, at: place)
      do {
        return try await check(
          DescriptorExhaustion(place: place, script: .short, phase: phase), in: worker)
      } catch {
        // Killing a process that has already ended has no effect.
        worker.kill()
        let ending = await worker.waitUntilEnd()
        // The signal of a trap depends on the processor.
        let isTrap = ending == .killed(signal: SIGILL) || ending == .killed(signal: SIGTRAP)
        guard attempt < 3, isTrap else { throw error }
      }
    }
  }
}

/// Tries repeatedly to open a place that cannot be opened, and counts the descriptors and files that are left.
struct FailedOpenings: CheckTask {
  let place: URL
  let count: Int

  /// How many more descriptors are tolerated: those of timers, event loops and thread pools, which a process creates
  /// when it first needs them. If each opening leaked a descriptor, there would be about ``count`` more.
  private static let tolerance = min(100, max(20, ProcessInfo.processInfo.activeProcessorCount))

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try note("opening what cannot be opened")
    var (before, filesBefore) = (0, 0)
    for number in 0..<count {
      // The first attempts may open files that the process keeps open, and create files that later attempts find.
      if number == 5 {
        (before, filesBefore) = (System.descriptorCount, try await ResourceSnapshot.measured(in: place).files)
      }
      do {
        let engine = EngineUnderTest(try await makeEngine(place))
        try? await engine.close()
        throw Skip(reason: "The engine opens the corrupted place on which opening was expected to throw.")
      } catch let skip as Skip {
        throw skip
      } catch {}
    }
    // A thread with an open file may take a while to end.
    var limit = RunningTimeLimit(.seconds(5))
    while System.descriptorCount > before + Self.tolerance, !limit.isOver() { await Task.yield() }
    let growth = System.descriptorCount - before
    try expect(
      growth <= Self.tolerance, "\(count) opens that threw left \(growth) file descriptors open")
    let files = try await ResourceSnapshot.measured(in: place).files - filesBefore
    try expect(files <= ResourceSnapshot.countTolerance, "\(count) opens that threw left \(files) files")
  }
}
