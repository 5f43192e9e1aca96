import ConformanceKit
import FaultyEngineWorker
import StockroomCore
import Testing

@Suite("Unusual transactions")
struct UnusualTransactionTests {
  private func outcome(
    of id: String, _ claims: EngineCapabilities,
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) async throws -> ConformanceOutcome {
    let suite = ConformanceSuite("Unusual", capabilities: claims, budget: .quick) { _ in
      makeEngine(try ReferenceEngine(claiming: claims))
    }
    return try await #require(suite.checks.first { $0.id == id }).outcome()
  }

  /// Regression: the check inferred the release of a body from its end, which this body did not reach.
  @Test(
    "An engine that does not wait for bodies when it is closed passes the checks of closing beside them",
    arguments: ["transactions.closings-block-no-thread", "transactions.under-way-at-close"])
  func endsBodies(_ id: String) async throws {
    let outcome = try await outcome(of: id, FaultyEngineCase.claimsOfTransactions) {
      EndsBodiesWhenClosed(base: $0)
    }
    #expect(outcome == .passed)
  }

  /// Regression: the check waited until bodies in all engines had begun, and the first one ran until its time limit.
  @Test("Engines that run one body after the other, on any place, pass the check of blocked threads")
  func queueOfBodies() async throws {
    let queue = Places(1)
    let outcome = try await outcome(
      of: "transactions.block-no-thread", FaultyEngineCase.claimsOfTransactions
    ) { SharesAQueueOfBodies(base: $0, queue: queue) }
    #expect(outcome == .passed)
  }

  @Test(
    "An engine that aborts bodies at a write, and throws conflict even if they go on, passes")
  func abortsAtWrites() async throws {
    for id in [
      "transactions.swallowed-errors", "transactions.lists-beside-changes", "transactions.no-write-skew",
    ] {
      let outcome = try await outcome(of: id, FaultyEngineCase.claimsOfTransactions) {
        AbortsAtWrites(base: $0, end: .throwsConflict)
      }
      #expect(outcome == .passed, "\(id)")
    }
  }

  /// Regression: two writes of one transaction, which have the same time, were expected in the order in which the body
  /// made them.
  @Test("An engine with transactions that orders entries by times alone passes the check of their order")
  func ordersByTimes() async throws {
    let outcome = try await outcome(of: "transactions.times-and-order", .transactions) {
      OrdersByCoarseTimes(base: $0)
    }
    #expect(outcome == .passed)
  }
}
