#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import Synchronization

// No call waits forever while others make calls: rule C1, by which every call returns.

extension CheckDefinition {
  @CheckList static var fairnessChecks: [CheckDefinition] {
    for (name, victim, others) in fairnessTrials {
      Check(
        .c1, "fairness.\(name)",
        "\(victim.name) returns while eight tasks call \(others.name) in a loop, before they have made "
          + "hundreds of times as many calls as a single task makes during it", needs: victim.needs
      ) { context in
        try await FairnessTrial(engine: try await context.open(), victim: victim, others: others).run(context)
      }
    }
    for (name, call) in [("among-readers", FairnessCall.read), ("among-writers", .change(.write))] {
      Check(
        .c1, "fairness.\(name)",
        "of eight tasks that call \(call.name) in a loop, each has made three calls before all together have "
          + "made tens of thousands"
      ) { context in
        try await FairnessTrial(engine: try await context.open(), victim: call, others: call).runEqually(
          context)
      }
    }
  }
}

/// A call that waits, and the calls that other tasks make meanwhile.
private let fairnessTrials: [(name: String, victim: FairnessCall, others: FairnessCall)] = [
  ("writers-among-readers", .change(.write), .read), ("writers-among-scans", .change(.write), .readAll),
  ("imports-among-readers", .change(.writeEntries), .read),
  ("transactions-among-readers", .change(.transaction), .read),
  ("removals-of-everything-among-readers", .change(.removeAll), .read),
  ("batches-among-writers", .change(.writeMany), .change(.write)),
  ("readers-among-writers", .read, .change(.write)),
  ("reads-of-everything-among-writers", .readAll, .change(.write)),
]

private enum FairnessCall: Sendable {
  case read, readAll
  case change(ChangeMethod)

  var name: String {
    switch self {
    case .read: ReadMethod.read.call
    case .readAll: ReadMethod.readAllDataAndKeys.call
    case .change(let method): method.call
    }
  }

  var needs: EngineCapabilities { if case .change(let method) = self { method.needs } else { [] } }
}

/// A call among calls of others that never stop.
///
/// The wait is measured in calls of the others: first beside a single task, which leaves gaps between its calls even if
/// the engine lets readers go first, and then beside eight. A cause that makes one kind of call slow, such as a disk,
/// affects both measurements.
private struct FairnessTrial: Sendable {
  let engine: EngineUnderTest
  let victim: FairnessCall
  let others: FairnessCall

  private static let taskCount = 8

  func run(_ context: CheckContext) async throws {
    var alone = 0
    for number in 0..<5 {
      alone = max(alone, try await callsMeanwhile(number, taskCount: 1, limit: .max) ?? 0)
    }
    let limit = context.longestWait * Self.taskCount * (alone + 10)
    // If the system does not run a thread for a while, that is not the engine's fault.
    for number in 0..<3 {
      context.noteProgress()
      if try await callsMeanwhile(number, taskCount: Self.taskCount, limit: limit) != nil { return }
    }
    throw Violation(
      "\(victim.name) had not returned three times when eight tasks had made \(limit) calls of "
        + "\(others.name); beside a single task it took \(alone)")
  }

  /// The number of calls that the others make during a call of the victim. Nil if they reach the limit first; then they
  /// stop.
  private func callsMeanwhile(_ number: Int, taskCount: Int, limit: Int) async throws -> Int? {
    let (isDone, hasBegun) = (Flag(), Flag())
    let calls = CallCounter()
    // Entries for the calls to read and to remove.
    try await engine.write(entries(keys(20)))
    return try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<taskCount {
        group.addTask { @concurrent in
          var round = 0
          while !isDone.isSet, !Task.isCancelled {
            try await call(others, task: task, round)
            // Counts from the start of the victim's call.
            if hasBegun.isSet, calls.add() >= limit { return }
            round += 1
            // The tasks must not run in lockstep.
            for _ in 0...(task + round) % 3 { await Task.yield() }
          }
        }
      }
      for _ in 0..<20 { await Task.yield() }
      group.addTask { @concurrent in
        hasBegun.set()
        try await call(victim, task: 99, number)
        calls.finish()
        isDone.set()
      }
      try await group.waitForAll()
      let count = calls.finalCount
      return count < limit ? count : nil
    }
  }

  /// Fails unless every task makes progress.
  func runEqually(_ context: CheckContext) async throws {
    try await engine.write(entries(keys(20)))
    let limit = 10 * context.longestWait * Self.taskCount
    var counts: [Int] = []
    // If the system does not run a thread for a while, that is not the engine's fault.
    for _ in 0..<3 {
      context.noteProgress()
      counts = try await callsOfEach(limit: limit)
      if !counts.contains(where: { $0 < 3 }) { return }
    }
    throw Violation(
      "when eight tasks had made \(limit) calls of \(others.name), in three attempts, the calls of each task "
        + "were: \(counts)"
    )
  }

  /// The number of calls that each task has made when all have made three, or when all together have reached the limit.
  private func callsOfEach(limit: Int) async throws -> [Int] {
    let isDone = Flag()
    let counts = MutexProtected(
      (of: Array(repeating: 0, count: Self.taskCount), all: 0, finalCounts: [Int]()))
    try await gather(0..<Self.taskCount) { task in
      while !isDone.isSet, !Task.isCancelled {
        try await call(others, task: task, 0)
        let isLast = counts.withLock { counts in
          counts.of[task] += 1
          counts.all += 1
          guard counts.finalCounts.isEmpty else { return true }
          if counts.all >= limit || !counts.of.contains(where: { $0 < 3 }) { counts.finalCounts = counts.of }
          return !counts.finalCounts.isEmpty
        }
        if isLast { isDone.set() }
        await Task.yield()
      }
    }
    return counts.withLock { $0.finalCounts }
  }

  private func call(_ call: FairnessCall, task: Int, _ round: Int) async throws {
    switch call {
    case .read: _ = try await engine.read(key: key("key-00003"))
    case .readAll: _ = try await engine.readAllDataAndKeys()
    case .change(let method):
      let changed = keys(method.isOfOneKey ? 1 : 3, prefix: "of-\(task)-")
      try await method.perform(entries(changed, version: round), in: engine)
    }
  }
}

/// Counts calls until another call has ended.
private final class CallCounter: Sendable {
  private let count = Atomic(0)
  private let lastCount = Atomic(0)

  func add() -> Int { count.wrappingAdd(1, ordering: .relaxed).newValue }

  func finish() { lastCount.store(count.load(ordering: .relaxed), ordering: .relaxed) }

  var finalCount: Int { lastCount.load(ordering: .relaxed) }
}
