import Foundation
import StockroomCore
import StockroomKitSupport

/// Makes one system call after the other fail, each in a new place, during a series of steps on a small
/// store.
struct SystemFaultSearch {
  let context: CheckContext
  let scenario: SystemFaultRun.Scenario
  /// The calls to fail.
  let calls: [SystemCall]
  /// How they fail.
  let failures: [SystemFault.Failure]
  /// The maximum number of faults. Nil for all.
  let limit: Int?
  let losesUnsynced: Bool

  init(
    _ context: CheckContext, _ calls: [SystemCall],
    failures: [SystemFault.Failure] = SystemFault.Failure.allCases,
    _ scenario: SystemFaultRun.Scenario = .steps(20), limit: Int?, losesUnsynced: Bool = false
  ) {
    (self.context, self.calls, self.scenario, self.limit) = (context, calls, scenario, limit)
    (self.failures, self.losesUnsynced) = (failures, losesUnsynced)
  }

  /// The time limit for a step on a store with a few dozen entries.
  private static let timeout = Duration.seconds(60)

  /// Fails if the engine does not handle one of the faults. If several faults of one kind cause violations, it reports
  /// an early one.
  func run() async throws {
    let worker = FaultWorker(context)
    defer { worker.end() }
    let outcome = try await perform(nil, worker)
    let faults = selection(outcome.counts, outcome.whenReopened)
    if faults.isEmpty {
      throw Skip(
        reason: "The engine makes none of the system calls that the check makes fail.")
    }
    for fault in faults {
      guard let violation = try await violation(of: fault, worker) else { continue }
      // With several tasks, the calls have different numbers in every run.
      guard limit != nil, case .steps = scenario else { throw violation }
      throw try await earlier(than: fault, worker) ?? violation
    }
  }

  /// The violation of an earlier call of the same kind, found in a logarithmic number of attempts. Nil if there is
  /// none.
  private func earlier(than fault: SystemFault, _ worker: FaultWorker) async throws -> Violation? {
    var (found, shown): (Violation?, Int) = (nil, fault.number)
    var passing = 0
    while shown - passing > 1 {
      let number = (passing + shown) / 2
      let earlier = SystemFault(
        call: fault.call, number: number, failure: fault.failure, persists: fault.persists)
      if let violation = try await violation(of: earlier, worker) {
        (found, shown) = (violation, number)
      } else {
        passing = number
      }
    }
    return found
  }

  /// All faults, or some of every kind of call and failure, plus some that persist.
  private func selection(_ counts: [SystemCall: Int], _ whenReopened: [SystemCall: Int]) -> [SystemFault] {
    func kind(_ call: SystemCall, _ failure: SystemFault.Failure, persists: Bool = false) -> [SystemFault] {
      (0..<(counts[call] ?? 0)).map {
        SystemFault(call: call, number: $0 + 1, failure: failure, persists: persists)
      }
    }
    func fails(_ call: SystemCall, _ failure: SystemFault.Failure) -> Bool {
      call.failures.contains(failure) && failures.contains(failure)
    }
    let single = calls.flatMap { call in
      call.failures.filter { fails(call, $0) }.map { kind(call, $0) }
    }
    let persistent = calls.filter { $0.isWrite && fails($0, .short) }.map { kind($0, .short, persists: true) }
    let unreadable = calls.filter { $0.isRead && fails($0, .inputOutput) }
      .map { kind($0, .inputOutput, persists: true) }
    guard let limit else { return (single + persistent + unreadable).flatMap { $0 } }
    var random = SeededRandom(seed: context.budget.seed)
    let some = choice(limit, of: single, whenReopened, &random)
    return some + choice(limit / 8, of: persistent, whenReopened, &random)
      + choice(limit / 8, of: unreadable, whenReopened, &random)
  }

  /// Some faults of every kind: the first call when an existing store is opened, where an engine is most likely to
  /// treat the store as empty, and others spread over all calls.
  private func choice(
    _ limit: Int, of kinds: [[SystemFault]], _ whenReopened: [SystemCall: Int], _ random: inout SeededRandom
  ) -> [SystemFault] {
    let groups = kinds.map { kind in
      var group = kind.shuffled(using: &random)
      if let first = group.firstIndex(where: { $0.number == whenReopened[$0.call] }) {
        group.insert(group.remove(at: first), at: 0)
      }
      return group
    }
    return roundRobin(groups.shuffled(using: &random), limit: limit)
  }

  private func violation(of fault: SystemFault, _ worker: FaultWorker) async throws -> Violation? {
    let result = try await perform(fault, worker)
    guard let violation = result.violation else { return nil }
    let place = result.failedFile.map { " (of \($0))" } ?? ""
    return Violation("after \(fault)\(place), \(violation.description)", rule: violation.rule)
  }

  private func perform(_ fault: SystemFault?, _ worker: FaultWorker) async throws -> FaultWorker.Outcome {
    context.noteProgress()
    let place = context.root.appending(path: "faults-\(UUID().uuidString)", directoryHint: .isDirectory)
    let task = SystemFaultRun(
      place: place, scenario: scenario, fault: fault,
      isAtomic: context.capabilities.contains(.atomicBatches),
      hasTransactions: context.capabilities.contains(.transactions), losesUnsynced: losesUnsynced)
    let outcome = try await worker.outcome(of: task, limit: context.timeout(atMost: Self.timeout))
    if fault == nil, let violation = outcome.violation {
      throw Violation("with nothing failing, \(violation.description)", rule: violation.rule)
    }
    // The engine may not have created it.
    if FileManager.default.fileExists(atPath: place.systemPath) {
      try FileManager.default.removeItem(at: place)
    }
    return outcome
  }
}

/// The faults of calls that were counted in several parts of a trial: first one of each kind of call in each part, then
/// a second one, and so on, in an order that depends on the seed.
///
/// - Parameter limit: The maximum number of faults. Nil for all.
func faults<Part>(
  in counts: [(part: Part, calls: [SystemCall: Int])], seed: UInt64, limit: Int?
) -> [(part: Part, fault: SystemFault)] {
  var random = SeededRandom(seed: seed)
  let groups = counts.flatMap { part, calls in
    calls.sorted { $0.key.rawValue < $1.key.rawValue }.map { call, count in
      call.failures.flatMap { failure in
        (0..<count).map { (part, SystemFault(call: call, number: $0 + 1, failure: failure)) }
      }
    }
  }
  return roundRobin(groups.map { $0.shuffled(using: &random) }.shuffled(using: &random), limit: limit)
}

/// The first element of each array, the second of each, and so on.
///
/// - Parameter limit: The maximum number of elements. Nil for all.
func roundRobin<Element>(_ groups: [[Element]], limit: Int?) -> [Element] {
  let rounds = groups.lazy.map(\.count).max() ?? 0
  let all = (0..<rounds).lazy.flatMap { round in groups.lazy.filter { $0.count > round }.map { $0[round] } }
  return Array(all.prefix(limit ?? .max))
}

/// A worker process, which is replaced when it has died.
private final class FaultWorker {
  private let context: CheckContext
  private var process: WorkerProcess?

  init(_ context: CheckContext) { self.context = context }

  func end() { process?.kill() }

  struct Outcome {
    var counts: [SystemCall: Int] = [:]
    var whenReopened: [SystemCall: Int] = [:]
    var failedFile: String?
    var violation: Violation?
  }

  /// - Throws: ``Skip`` if no call can be made to fail.
  func outcome(of task: SystemFaultRun, limit: Duration) async throws -> Outcome {
    let process = try await context.readyWorker(self.process)
    self.process = process
    let messages = MutexProtected<[SystemFaultRun.Message]>([])
    let progress = CheckProgress()
    let result = await withStallTimeout(limit, since: progress) { [context] () -> Result<Void, any Error> in
      do {
        for try await message in try process.start(task) {
          messages.withLock { $0.append(message) }
          progress.note()
          context.noteProgress()
        }
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    var outcome = Outcome()
    var step = "the beginning"
    for message in messages.withLock({ $0 }) {
      switch message {
      case .step(let next): step = next
      case .broken(let violation):
        outcome.violation = Violation("during \(step): \(violation.description)", rule: violation.rule)
      case .end(let counts, let whenReopened, let failedFile):
        outcome.failedFile = failedFile
        outcome.counts = calls(counts)
        outcome.whenReopened = calls(whenReopened)
      }
    }
    switch result {
    case .success(.success): break
    case .success(.failure(let error)):
      try Task.checkCancellation()
      if error is WorkerProcess.ProtocolError || error is Skip { throw error }
      self.process = nil
      process.kill()
      outcome.violation = Violation("during \(step), \(error)")
    case .failure:
      try Task.checkCancellation()
      self.process = nil
      process.kill()
      outcome.violation = Violation("during \(step), the engine made no progress for \(limit)")
    }
    return outcome
  }

  private func calls(_ numbers: [String: Int]) -> [SystemCall: Int] {
    Dictionary(
      uniqueKeysWithValues: numbers.compactMap { name, number in
        SystemCall(rawValue: name).map { ($0, number) }
      })
  }
}
