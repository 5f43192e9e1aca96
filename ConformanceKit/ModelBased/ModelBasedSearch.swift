#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// Runs one sequence after the other until one fails or the budget is spent.
///
/// Sequences are short, a few hundred calls at most, since most faults show within a few calls. The first sequence uses
/// the seed of the budget, so that the seed of a failure reproduces it at once.
struct ModelBasedSearch: Sendable {
  let profile: CommandProfile
  let context: CheckContext

  /// - Throws: ``Violation`` with the shortest failing sequence.
  func run() async throws {
    let budget = context.budget
    let end = budget.duration.map { ContinuousClock.now + $0 }
    var (seed, left) = (budget.seed, budget.operations / 5 * profile.share)
    repeat {
      context.noteProgress()
      let operations = CommandGenerator.sequence(of: profile, for: context.capabilities, seed: seed)
      try await make(operations, seed: seed)
      left -= operations.count
      seed = SeededRandom.seed(after: seed)
    } while end.map { ContinuousClock.now < $0 } ?? (left > 0)
  }

  private func make(_ operations: [Command], seed: UInt64) async throws {
    let failure: FailedSequence?
    do {
      failure = try await SequenceRunner(context: context).failure(of: operations)
    } catch let failure as CallFailure {
      throw Violation("\(failure), before or after the calls of the sequence of seed \(seed)", seed: seed)
    }
    if let failure { throw try await report(on: failure, seed: seed) }
  }

  /// Makes the calls again. If the engine cannot be opened or closed this time, the failure has not been reproduced.
  private func attempt(_ operations: [Command]) async throws -> FailedSequence? {
    do {
      return try await SequenceRunner(context: context).failure(of: operations)
    } catch is CallFailure {
      try Task.checkCancellation()
      return nil
    }
  }

  private func happensAgain(_ operations: [Command]) async throws -> Bool {
    for _ in 0..<3 where try await attempt(operations) != nil { return true }
    return false
  }

  private func report(on failure: FailedSequence, seed: UInt64) async throws -> Violation {
    guard try await happensAgain(failure.operations) else { return irreproducible(failure, seed: seed) }
    var shrinker = SequenceShrinker(failure, attempt: attempt)
    try await shrinker.shrink()
    let shortest = shrinker.shortest
    guard try await happensAgain(shortest.operations) else { return irreproducible(failure, seed: seed) }
    let (rule, evidence) = try await SequenceDiagnosis(attempt: attempt).diagnose(shortest)
    let source = ReproductionSource(evidence, rule: rule, check: profile.check, seed: seed).source
    let calls = evidence.operations.count
    return Violation(
      "\(evidence.finding.text), at the end of the shortest sequence that shows it (\(calls) "
        + "\(calls == 1 ? "call" : "calls"), shrunk from \(failure.operations.count))",
      rule: rule, evidence: source, seed: seed)
  }

  /// A failure that depends on more than the calls is still a failure.
  private func irreproducible(_ failure: FailedSequence, seed: UInt64) -> Violation {
    Violation(
      "\(failure.finding.text), in call \(failure.operations.count) of the sequence of seed \(seed); it did "
        + "not happen each time the same calls were made, so it also depends on something else",
      rule: failure.finding.rule, seed: seed)
  }
}
