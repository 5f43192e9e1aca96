#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Every check that applies to an engine.
///
/// In a test target, with any test framework; here with Swift Testing:
///
/// ```swift
/// @Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
/// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
/// ```
///
/// Elsewhere, ``run(only:progress:)`` makes the checks and reports, and ``ConformanceResults`` shows the report.
public struct ConformanceSuite: Sendable {
  /// The name of the engine, for reports.
  public let name: String
  /// What the engine claims, which decides which checks apply.
  public let capabilities: EngineCapabilities
  /// Where the checks make their directories.
  public let workingDirectory: URL
  /// How long a check may go without getting any further before the engine is said to hang. Checks that search take
  /// longer as a whole, as the budget has it. Beyond five minutes single calls are waited for longer, too.
  public let stallTimeout: Duration
  /// How much the checks do, above all those that search for faults.
  public let budget: ConformanceBudget
  /// What opens the engine in a process of its own. Without it, checks that need one are left out.
  public let worker: ConformanceWorker?

  /// How much the clock that the engine's timestamps come from may differ from the clock of this process.
  public let clockTolerance: Duration

  /// The server that the engine reaches, for the checks of rules N1 to N6. Without it, they are skipped.
  public let server: ConformanceServer?

  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  /// What the checks of rules S1 to S10 put in front of the engine: `Store`, unless another is to be checked.
  package var makeStore: @MainActor @Sendable (any StorageEngine) -> any CheckedStore = { StoreUnderTest($0) }

  /// How long readers compute in the checks of rule C5 before a write must have had its turn: a second, says the rule.
  package var longestTurn = Duration.seconds(1)

  /// How many calls each of several tasks may make during one call of another task, for every call that a task alone makes during
  /// such a call. More, and the checks of fairness fail (rule C1).
  package var longestWait = 400

  /// The checks for an engine.
  ///
  /// - Parameters:
  ///   - name: The name of the engine, for reports.
  ///   - capabilities: What the engine claims. A capability that is claimed is checked; that the engine claims just these
  ///     is a check as well.
  ///   - workingDirectory: Where each check makes, and removes, a directory of its own.
  ///   - stallTimeout: How long a check may go without getting any further before the engine is said to hang: 120
  ///     seconds by default.
  ///   - budget: How much the checks do, above all those that search for faults.
  ///   - worker: What opens the engine in a process of its own, to be killed there. Without it, the checks that need one
  ///     are left out: see ``checksLeftOut``.
  ///   - server: The server that the engine reaches, for the checks of rules N1 to N6. Without it, they are skipped.
  ///   - clockTolerance: How much the clock that the engine's timestamps come from may differ from the clock of this
  ///     process, for an engine whose server sets them. Rule W2 allows 2 ms in any case.
  ///   - makeEngine: Opens an engine that keeps everything it keeps inside the directory, which need not exist.
  ///     Called several times for one directory in some checks. An engine that uses no files ignores it.
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

  /// The checks for an engine, whose capabilities it is asked for itself: it is opened once in a directory of its own.
  ///
  /// ```swift
  /// @Test(arguments: try await ConformanceSuite("MyEngine") { try MyEngine(directory: $0) }.checks)
  /// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
  /// ```
  ///
  /// The parameters are those of
  /// ``init(_:capabilities:workingDirectory:stallTimeout:budget:worker:server:clockTolerance:makeEngine:)``.
  ///
  /// - Throws: What opening the engine throws, or closing it.
  public init(
    _ name: String, workingDirectory: URL = FileManager.default.temporaryDirectory,
    stallTimeout: Duration = .seconds(120), budget: ConformanceBudget = ConformanceBudget(),
    worker: ConformanceWorker? = nil, server: ConformanceServer? = nil, clockTolerance: Duration = .zero,
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    let directory = workingDirectory.appending(
      path: "capabilities-\(UUID().uuidString)", directoryHint: .isDirectory)
    // An engine that uses no files has not made it.
    defer { try? FileManager.default.removeItem(at: directory) }
    let engine = try await makeEngine(directory)
    let capabilities = engine.capabilities
    try await engine.close()
    self.init(
      name, capabilities: capabilities, workingDirectory: workingDirectory, stallTimeout: stallTimeout,
      budget: budget, worker: worker, server: server, clockTolerance: clockTolerance, makeEngine: makeEngine)
  }

  /// The checks that apply to what the engine claims and can be made with what the suite was given, in the order of the
  /// contract.
  public var checks: [ConformanceCheck] { applicableChecks.filter { $0.reasonLeftOut == nil } }

  /// The checks that apply to what the engine claims and are not made, since the suite has no ``worker`` or the level of its
  /// ``budget`` is too low.
  public var checksLeftOut: [ConformanceCheck] { applicableChecks.filter { $0.reasonLeftOut != nil } }

  static let hasNoWorker = "The suite was given no worker process to do this in (see ConformanceWorker)."

  private var applicableChecks: [ConformanceCheck] {
    CheckDefinition.all
      .filter { $0.applies(to: capabilities) }
      .map { ConformanceCheck(definition: $0, suite: self) }
  }

  /// Says once for each suite of the process that checks are left out, where no report does.
  func noteChecksLeftOut() {
    guard worker == nil, suitesNoted.withLock({ $0.insert(name).inserted }) else { return }
    let (made, leftOut) = (checks.count, checksLeftOut.count { !$0.isBeyondLevel })
    guard leftOut > 0 else { return }
    System.note(
      "\(name) has no worker process (see ConformanceWorker): \(leftOut) of \(made + leftOut) checks are left out."
    )
  }

  /// Makes every check of the level, or some, one after the other.
  ///
  /// Once the task is cancelled, the checks that are left are reported as skipped, and so are those of ``checksLeftOut`` that
  /// lack a worker.
  ///
  /// - Parameters:
  ///   - identifiers: The identifiers of the checks to make. Those that no check has are ignored. Nil stands for all.
  ///   - progress: Called before each check and once after the last.
  public func run(
    only identifiers: Set<String>? = nil,
    progress: @escaping @Sendable (ConformanceProgress) -> Void = { _ in }
  ) async -> ConformanceReport {
    await run(only: identifiers, width: 1, progress: progress) { await $0.result() }
  }

  /// The same, with so many checks at a time, each of which is made by `result`.
  package func run(
    only identifiers: Set<String>?, width: Int,
    progress: @escaping @Sendable (ConformanceProgress) -> Void,
    result: @escaping @Sendable (ConformanceCheck) async -> ConformanceReport.Result
  ) async -> ConformanceReport {
    let clock = ContinuousClock()
    let start = clock.now
    let applicable = applicableChecks
    let ofLevel = applicable.filter { !$0.isBeyondLevel }
    let checks = identifiers.map { names in applicable.filter { names.contains($0.id) } } ?? ofLevel
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
    return ConformanceReport(
      name: name,
      capabilities: EngineCapabilities.named.filter { capabilities.contains($0.capability) }.map(\.name),
      budget: budget, results: results, applicableCount: ofLevel.count,
      leftOutCount: checks.count { $0.lacksWorker && !$0.isBeyondLevel },
      laterChecks: Dictionary(grouping: applicable.filter(\.isBeyondLevel), by: \.definition.level)
        .mapValues(\.count),
      seconds: (clock.now - start).inSeconds)
  }
}

/// The names of the suites whose missing worker processes have been noted.
private let suitesNoted = MutexProtected<Set<String>>([])

/// How far a run of a suite has come.
public struct ConformanceProgress: Sendable {
  /// How many checks have ended.
  public let completed: Int
  /// How many checks there are.
  public let total: Int
  /// The check that begins now; nil when all have ended.
  public let current: ConformanceCheck?
}

extension Duration {
  var inSeconds: Double {
    let (seconds, attoseconds) = components
    return Double(seconds) + Double(attoseconds) / 1e18
  }
}
