#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The environment of a check: a new directory, and engines that are closed at the end of the check.
final class CheckContext: Sendable {
  /// A directory of this check alone.
  let root: URL
  /// Where engines are opened unless the check says otherwise. It exists.
  let place: URL
  let capabilities: EngineCapabilities
  let budget: ConformanceBudget
  /// How long the check may make no progress.
  let stallTimeout: Duration
  /// The processor time that each reader may use before a write must have returned. See
  /// ``ConformanceSuite/longestTurn``.
  let longestTurn: Duration
  /// The factor of the fairness checks. See ``ConformanceSuite/longestWait``.
  let longestWait: Int
  /// Whether to use fewer entries if the engine is slow.
  let isSpeedMeasured: Bool
  /// How long to wait until resources are freed.
  let releaseLimits: ReleaseLimits
  /// Puts a store in front of an engine.
  let makeStore: @MainActor @Sendable (any StorageEngine) -> any CheckedStore

  /// When the check last made progress.
  let progress = CheckProgress()

  private let worker: ConformanceWorker?
  private let server: ConformanceServer?
  private let makeEngine: @Sendable (URL) async throws -> any StorageEngine
  private let opened = MutexProtected<[EngineUnderTest]>([])
  private let lastSteps = MutexProtected<[@Sendable () -> Void]>([])
  /// How much the clock of the engine's timestamps may differ from that of this process.
  let clockTolerance: Duration
  private let shortfallNoted = MutexProtected<String?>(nil)

  init(suite: ConformanceSuite) {
    root = suite.workingDirectory.appending(
      path: "conformance-\(UUID().uuidString)", directoryHint: .isDirectory)
    // Several levels deep, so that an engine that follows a key such as `../../x` does not leave the root.
    place = root.appending(path: "deep/down/in/here/place", directoryHint: .isDirectory)
    capabilities = suite.capabilities
    budget = suite.budget
    stallTimeout = suite.stallTimeout
    worker = suite.worker
    server = suite.server
    makeEngine = suite.makeEngine
    makeStore = suite.makeStore
    longestTurn = suite.longestTurn
    longestWait = suite.longestWait
    isSpeedMeasured = suite.isSpeedMeasured
    releaseLimits = suite.releaseLimits
    clockTolerance = suite.clockTolerance
  }

  /// The engines that were opened and are closed when the check is over; some of them may have been closed already.
  var enginesLeftOpen: [EngineUnderTest] { opened.withLock { $0 } }

  /// Performs the steps of a check, then closes its engines and removes its directory in any case.
  func perform(_ body: CheckDefinition.Body) async -> Result<Void, any Error> {
    var result: Result<Void, any Error>
    do {
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
      try await ClockTolerance.$seconds.withValue(0.002 + clockTolerance.inSeconds) { try await body(self) }
      result = .success(())
    } catch {
      result = .failure(error)
    }
    // Only checks of closing check the errors of close(); in all others it is cleanup.
    for engine in opened.withLock({ $0 }) { try? await close(engine) }
    removeDirectory()
    return result
  }

  /// Reports progress, which restarts the suite's stall timeout.
  ///
  /// Must be called in every check whose length depends on the budget, after each unit of work that takes
  /// seconds at most unless the engine hangs: a history, a kill, a state of the disk. It costs less than a
  /// microsecond. Must not be called for work that continues although the engine hangs, such as readers
  /// during a write.
  func noteProgress() { progress.note() }

  /// How far the check got, if it did not go as far as its level requires.
  var shortfall: String? { shortfallNoted.withLock { $0 } }

  /// Notes how far the check went, as in "1,200 of 70,000 calls", for the report.
  func noteShortfall(_ text: String) { shortfallNoted.withLock { $0 = text } }

  /// How long to wait for a single call, or a few: at most this long, and less than the stall timeout. A
  /// suite with a stall timeout of more than five minutes is for a slow engine or machine, and has longer
  /// limits here as well.
  func timeout(atMost limit: Duration) -> Duration {
    min(limit * max(1, stallTimeout / .seconds(300)), stallTimeout / 2)
  }

  /// How long to wait for a call that may wait for a lock. An engine waits for at most a minute before it
  /// throws `locked`.
  var timeoutWithLocks: Duration { min(.seconds(75), stallTimeout * 3 / 4) }

  /// Registers work to do after the engines have been closed, before the directory is removed.
  func addTeardown(_ step: @escaping @Sendable () -> Void) {
    lastSteps.withLock { $0.append(step) }
  }

  /// Removes everything that the check has created. If that fails, the system's cleanup has to remove it.
  func removeDirectory() {
    let steps = lastSteps.withLock { steps in
      defer { steps = [] }
      return steps
    }
    for step in steps { step() }
    try? FileManager.default.removeItem(at: root)
  }

  /// Opens an engine, which is closed when the check is over.
  func open(_ directory: URL? = nil) async throws -> EngineUnderTest {
    let engine = try await openUnregistered(directory)
    opened.withLock { $0.append(engine) }
    return engine
  }

  /// Opens an engine to which only the caller holds a reference.
  func openUnregistered(_ directory: URL? = nil) async throws -> EngineUnderTest {
    try await opening { try await makeEngine(directory ?? place) }
  }

  private func opening(_ make: () async throws -> any StorageEngine) async throws -> EngineUnderTest {
    let call = "opening the engine"
    progress.begin(call)
    defer {
      progress.end(call)
      // The engine may have waited for a lock for a minute, and a check may open several engines. This is not full
      // progress, because an opening that throws may be retried forever.
      progress.noteReturn()
    }
    do {
      return EngineUnderTest(try await make(), noting: progress)
    } catch {
      throw CallFailure(call: call, error: error)
    }
  }

  /// Opens an engine, uses it, and releases the last reference without closing it.
  func openAndDrop<Result>(
    _ directory: URL? = nil, _ body: (EngineUnderTest) async throws -> Result
  ) async throws -> Result {
    try await body(try await openUnregistered(directory))
  }

  /// Starts a process that opens the engine, and ends no later than the check.
  ///
  /// - Parameter tool: A program, with its arguments, that runs the process.
  func startWorker(under tool: [String] = []) throws -> WorkerProcess {
    guard let worker else {
      throw Skip(reason: ConformanceSuite.hasNoWorker)
    }
    let process = try WorkerProcess(worker, under: tool)
    addTeardown { process.kill() }
    return process
  }

  /// Calls `body` with the engine's server, after starting it if necessary.
  func withServer(_ body: (ConformanceServer) async throws -> Void) async throws {
    guard let server else {
      throw Skip(reason: "The suite has no server (see ConformanceServer).")
    }
    try await server.start()
    try await body(server)
  }

  /// Opens an engine that connects to the server through this port of 127.0.0.1.
  ///
  /// - Throws: ``Skip`` if the place is locked, as rules C2 and C3 allow while another engine has it open.
  func open(
    through port: UInt16, to server: ConformanceServer, at directory: URL? = nil
  ) async throws -> EngineUnderTest {
    do {
      return try await opening { try await server.makeEngine(directory ?? place, port) }
    } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .locked {
      if capabilities.contains(.multiProcess) { throw failure }
      throw Skip(reason: "The check opens a place twice, and the engine threw locked.")
    }
  }

  /// Closes the engine and releases it.
  func close(_ engine: EngineUnderTest) async throws {
    defer { engine.release() }
    try await engine.close()
  }

  /// Closes the engine, releases it and opens another one on its place.
  func reopen(_ engine: EngineUnderTest, at directory: URL? = nil) async throws -> EngineUnderTest {
    try await close(engine)
    return try await open(directory)
  }
}
