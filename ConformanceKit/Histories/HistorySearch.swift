#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// Makes history after history until one goes wrong or the effort is spent.
///
/// Histories are short, a few hundred calls at most, since what is wrong shows in a few calls or hardly ever. The first
/// has the seed of the effort, so that the seed which a failure names makes it happen at once.
struct HistorySearch: Sendable {
  let profile: HistoryProfile
  let context: CheckContext

  /// - Throws: ``Violation`` with the shortest history that goes wrong.
  func run() async throws {
    let effort = context.effort
    let end = effort.duration.map { ContinuousClock.now + $0 }
    var (seed, left) = (effort.seed, effort.operations / 5 * profile.share)
    repeat {
      context.noteProgress()
      let operations = HistoryGenerator.history(of: profile, seed: seed)
      try await make(operations, seed: seed)
      left -= operations.count
      seed = SeededRandom.seed(after: seed)
    } while end.map { ContinuousClock.now < $0 } ?? (left > 0)
  }

  private func make(_ operations: [HistoryOperation], seed: UInt64) async throws {
    let failure: HistoryFailure?
    do {
      failure = try await HistoryRunner(context: context).failure(of: operations)
    } catch let failure as CallFailure {
      throw Violation("\(failure), before or after the calls of the history of seed \(seed)", seed: seed)
    }
    if let failure { throw try await verdict(on: failure, seed: seed) }
  }

  /// Makes calls once more. An engine that cannot be opened or closed this time does not show what is looked for.
  private func attempt(_ operations: [HistoryOperation]) async throws -> HistoryFailure? {
    do {
      return try await HistoryRunner(context: context).failure(of: operations)
    } catch is CallFailure {
      try Task.checkCancellation()
      return nil
    }
  }

  private func happensAgain(_ operations: [HistoryOperation]) async throws -> Bool {
    for _ in 0..<3 where try await attempt(operations) != nil { return true }
    return false
  }

  private func verdict(on failure: HistoryFailure, seed: UInt64) async throws -> Violation {
    guard try await happensAgain(failure.operations) else { return unsteady(failure, seed: seed) }
    var shrinker = HistoryShrinker(failure, attempt: attempt)
    try await shrinker.shrink()
    let shortest = shrinker.shortest
    guard try await happensAgain(shortest.operations) else { return unsteady(failure, seed: seed) }
    let (rule, proof) = try await HistoryDiagnosis(attempt: attempt).diagnose(shortest)
    let source = HistoryReproduction(proof, rule: rule, check: profile.check, seed: seed).source
    let calls = proof.operations.count
    return Violation(
      "\(proof.finding.text), at the end of the shortest history that shows it (\(calls) "
        + "\(calls == 1 ? "call" : "calls"), shrunk from \(failure.operations.count))",
      rule: rule, proof: source, seed: seed)
  }

  /// What depends on more than the calls is no less wrong.
  private func unsteady(_ failure: HistoryFailure, seed: UInt64) -> Violation {
    Violation(
      "\(failure.finding.text), in call \(failure.operations.count) of the history of seed \(seed); it did not happen "
        + "each time that the same calls were made, so that it depends on something else as well",
      rule: failure.finding.rule, seed: seed)
  }
}
