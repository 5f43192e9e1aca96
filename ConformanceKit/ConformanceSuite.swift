#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The checks that apply to an engine.
///
/// In a test target, with any test framework; here with Swift Testing:
///
/// ```swift
/// @Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
/// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
/// ```
///
/// Without a test framework, ``run(only:progress:)`` runs the checks and returns a report, which
/// ``ConformanceResults`` formats.
public struct ConformanceSuite: Sendable {
  /// The name of the engine, for reports.
  public let name: String
  /// The capabilities that the engine claims. They determine which checks apply.
  public let capabilities: EngineCapabilities
  /// The directory in which the checks create their directories.
  public let workingDirectory: URL
  /// How long a check may make no progress before it fails because the engine hangs. Time in which the
  /// process does not run does not count, nor does up to four times as much in which it waits for a processor
  /// or a disk. The total time of a check that searches is set by the budget. With a value of more than five
  /// minutes, the checks also wait longer for single calls.
  public let stallTimeout: Duration
  /// How thorough the checks are, above all those that search for faults.
  public let budget: ConformanceBudget
  /// The executable that opens the engine in a separate process. Without it, the checks that need one are
  /// left out.
  public let worker: ConformanceWorker?

  /// How much the clock that sets the engine's timestamps may differ from the clock of this process.
  public let clockTolerance: Duration

  /// The server that the engine connects to, for the checks of rules N1 to N6. Without it, they are skipped.
  public let server: ConformanceServer?

  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  /// The store that the checks of rules S1 to S10 put in front of the engine. `Store` by default.
  package var makeStore: @MainActor @Sendable (any StorageEngine) -> any CheckedStore = { StoreUnderTest($0) }

  /// The processor time that each reader may use in the checks of rule C5 before a write must have returned: one
  /// second, as rule C5 says.
  package var longestTurn = Duration.seconds(1)

  /// The factor in the limit of the fairness checks (rule C1). While one call waits, each of eight other tasks may make
  /// this many times n + 10 calls, where n is the number that a single other task makes during such a call.
  package var longestWait = 400

  /// Whether checks measure how many entries the engine handles in time, and use fewer entries if it is slow. Without
  /// it, the speed of the machine does not affect which faults they find.
  package var isSpeedMeasured = true

  /// How long the checks of leaks (rules O4 and X4) wait until resources are freed.
  package var releaseLimits = ReleaseLimits()

  /// The checks for an engine.
  ///
  /// - Parameters:
  ///   - name: The name of the engine, for reports.
  ///   - capabilities: What the engine claims. Each claimed capability is checked, and so is that the engine
  ///     reports exactly these.
  ///   - workingDirectory: Where each check creates and removes its own directory.
  ///   - stallTimeout: How long a check may make no progress before it fails because the engine hangs. 120
  ///     seconds by default.
  ///   - budget: How thorough the checks are, above all those that search for faults.
  ///   - worker: The executable that opens the engine in a separate process, which checks can kill. Without
  ///     it, the checks that need one are left out: see ``checksLeftOut``.
  ///   - server: The server that the engine connects to, for the checks of rules N1 to N6. Without it, they
  ///     are skipped.
  ///   - clockTolerance: How much the clock that sets the engine's timestamps may differ from the clock of
  ///     this process, for an engine whose server sets them. Rule W2 always allows 2 ms.
  ///   - makeEngine: Opens an engine that stores everything inside the directory, which need not exist. Some
  ///     checks call it several times for one directory. An engine that uses no files ignores the directory.
  public init(
    _ name: String, capabilities: EngineCapabilities,
    workingDirectory: URL = FileManager.default.temporaryDirectory, stallTimeout: Duration = .seconds(120),
    budget: ConformanceBudget = ConformanceBudget(), worker: ConformanceWorker? = nil,
    server: ConformanceServer? = nil, clockTolerance: Duration = .zero,
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) {
    self.name = name
    self.capabilities = capabilities
    self.workingDirectory = workingDirectory
    self.stallTimeout = stallTimeout
    self.budget = budget
    self.worker = worker
    self.server = server
    self.clockTolerance = clockTolerance
    self.makeEngine = makeEngine
  }

  /// The checks for an engine that reports its capabilities itself. It is opened once, in its own directory,
  /// to read them.
  ///
  /// ```swift
  /// @Test(arguments: try await ConformanceSuite("MyEngine") { try MyEngine(directory: $0) }.checks)
  /// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
  /// ```
  ///
  /// The parameters are those of
  /// ``init(_:capabilities:workingDirectory:stallTimeout:budget:worker:server:clockTolerance:makeEngine:)``.
  ///
  /// - Throws: The error of opening or closing the engine.
  public init(
    _ name: String, workingDirectory: URL = FileManager.default.temporaryDirectory,
    stallTimeout: Duration = .seconds(120), budget: ConformanceBudget = ConformanceBudget(),
    worker: ConformanceWorker? = nil, server: ConformanceServer? = nil, clockTolerance: Duration = .zero,
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    let directory = workingDirectory.appending(
      path: "capabilities-\(UUID().uuidString)", directoryHint: .isDirectory)
    // An engine that uses no files does not create it.
    defer { try? FileManager.default.removeItem(at: directory) }
    let engine = try await makeEngine(directory)
    let capabilities = engine.capabilities
    try await engine.close()
    self.init(
      name, capabilities: capabilities, workingDirectory: workingDirectory, stallTimeout: stallTimeout,
      budget: budget, worker: worker, server: server, clockTolerance: clockTolerance, makeEngine: makeEngine)
  }

  /// The checks that apply to the engine's capabilities and that the suite can run, in the order of the
  /// contract.
  public var checks: [ConformanceCheck] { applicableChecks.filter { $0.reasonLeftOut == nil } }

  /// The checks that apply to the engine's capabilities but do not run, because the suite has no ``worker``
  /// or the level of its ``budget`` is too low.
  public var checksLeftOut: [ConformanceCheck] { applicableChecks.filter { $0.reasonLeftOut != nil } }

  static let hasNoWorker = "The suite has no worker process, which this needs (see ConformanceWorker)."

  private var applicableChecks: [ConformanceCheck] {
    CheckDefinition.all
      .filter { $0.applies(to: capabilities) }
      .map { ConformanceCheck(definition: $0, suite: self) }
  }

  /// Prints, once per suite and process, that checks are left out, for runs without a report.
  func noteChecksLeftOut() {
    guard worker == nil, suitesNoted.withLock({ $0.insert(name).inserted }) else { return }
    let (made, leftOut) = (checks.count, checksLeftOut.count { !$0.isBeyondLevel })
    guard leftOut > 0 else { return }
    System.note(
      "\(name) has no worker process (see ConformanceWorker): \(leftOut) of \(made + leftOut) checks are left out."
    )
  }

  /// Runs all checks of the level, or some, one after the other.
  ///
  /// After the task is cancelled, the remaining checks are reported as skipped. Checks of ``checksLeftOut``
  /// that need a worker are always reported as skipped.
  ///
  /// - Parameters:
  ///   - identifiers: The identifiers of the checks to run, or nil for all. Unknown identifiers are ignored.
  ///   - progress: Called before each check and after the last one.
  public func run(
    only identifiers: Set<String>? = nil,
    progress: @escaping @Sendable (ConformanceProgress) -> Void = { _ in }
  ) async -> ConformanceReport {
    await run(only: identifiers, width: 1, progress: progress) { await $0.result() }
  }

  /// Like ``run(only:progress:)``, with up to `width` checks at a time. `result` runs each of them.
  package func run(
    only identifiers: Set<String>?, width: Int,
    progress: @escaping @Sendable (ConformanceProgress) -> Void,
    result: @escaping @Sendable (ConformanceCheck) async -> ConformanceReport.Result
  ) async -> ConformanceReport {
    let clock = ContinuousClock()
    let start = clock.now
    let applicable = applicableChecks
    let checks = applicable.filter { identifiers?.contains($0.id) ?? !$0.isBeyondLevel }
    let results = await withTaskGroup(
      of: (Int, ConformanceReport.Result).self, returning: [ConformanceReport.Result].self
    ) { group in
      var results: [Int: ConformanceReport.Result] = [:]
      for (number, check) in checks.enumerated() {
        if number >= width, let (done, result) = await group.next() { results[done] = result }
        progress(ConformanceProgress(completed: results.count, total: checks.count, current: check))
        group.addTask { (number, await result(check)) }
      }
      for await (done, result) in group { results[done] = result }
      return results.sorted { $0.key < $1.key }.map(\.value)
    }
    progress(ConformanceProgress(completed: results.count, total: checks.count, current: nil))
    return report(of: results, seconds: (clock.now - start).inSeconds)
  }

  /// The report of some of the checks.
  ///
  /// - Parameters:
  ///   - results: The results in the order of the contract.
  ///   - seconds: How long the checks took together.
  package func report(of results: [ConformanceReport.Result], seconds: Double) -> ConformanceReport {
    let applicable = applicableChecks
    let reported = Set(results.map(\.check))
    return ConformanceReport(
      name: name,
      capabilities: EngineCapabilities.named.filter { capabilities.contains($0.capability) }.map(\.name),
      budget: budget, results: results, applicableCount: applicable.count { !$0.isBeyondLevel },
      leftOutCount: applicable.count { reported.contains($0.id) && $0.lacksWorker && !$0.isBeyondLevel },
      laterChecks: Dictionary(grouping: applicable.filter(\.isBeyondLevel), by: \.definition.level)
        .mapValues(\.count),
      seconds: seconds)
  }
}

/// The names of the suites whose missing worker processes have been noted.
private let suitesNoted = MutexProtected<Set<String>>([])

/// The progress of a run of a suite.
public struct ConformanceProgress: Sendable {
  /// The number of checks that have ended.
  public let completed: Int
  /// The number of all checks.
  public let total: Int
  /// The check that starts now, or nil when all have ended.
  public let current: ConformanceCheck?
}

extension Duration {
  var inSeconds: Double {
    let (seconds, attoseconds) = components
    return Double(seconds) + Double(attoseconds) / 1e18
  }
}
