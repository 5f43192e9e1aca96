import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

@Suite("Unusual engines behind a store")
struct UnusualStoreEngineTests {
  private static let claimsOfFeeds: EngineCapabilities = [
    .atomicBatches, .snapshotReads, .orderedScans, .changeFeed,
  ]

  private func failure(
    of id: String, _ claims: EngineCapabilities,
    makeEngine: @escaping @Sendable () throws -> any StorageEngine
  ) async throws -> ConformanceFailure? {
    let suite = ConformanceSuite("Unusual", capabilities: claims, budget: .quick) { _ in try makeEngine() }
    return try await #require(suite.checks.first { $0.id == id }).outcome().failure
  }

  /// Regression: items that the engine cannot distinguish were expected in the order of insertion.
  @Test(
    "An engine that orders a batch by times alone does not fail the checks of the order of a store's items",
    arguments: [
      "store.sizes", "store.changes-while-loading", "store.events-before-loading", "store.failed-load",
      "store.replaces-in-place", "store.undecodable-entries", "store.follows-another",
      "store.follows-the-engine",
    ])
  func ordersByCoarseTimes(_ id: String) async throws {
    let failure = try await failure(of: id, .changeFeed) {
      OrdersByCoarseTimes(base: try ReferenceEngine(claiming: .changeFeed))
    }
    #expect(failure == nil, "\(failure?.actual ?? "")")
  }

  /// Regression: a second event of the same load failed the check.
  @Test(
    "An engine whose feed elements all cover everything passes the checks of a store's events",
    arguments: ["store.events-before-loading", "store.events-tell-all", "store.follows-another"])
  func announcesEverything(_ id: String) async throws {
    let failure = try await failure(of: id, Self.claimsOfFeeds) {
      AnnouncesEverything(base: try ReferenceEngine(claiming: Self.claimsOfFeeds))
    }
    #expect(failure == nil, "\(failure?.actual ?? "")")
  }

  /// Regression: the time limit of a write was derived from that of reads.
  @Test("A write whose sync takes as long as thousands of reads does not count as waiting for a subscriber")
  func syncsForLong() async throws {
    let failure = try await failure(of: "store.slow-subscriber", []) {
      SyncsForLongOnce(base: try ReferenceEngine(claiming: []))
    }
    #expect(failure == nil, "\(failure?.actual ?? "")")
  }
}

@Suite("Engines that order entries by time alone")
struct OrderByTimeTests {
  /// Regression: entries of one batch, which may all have the same time, were expected in the order of the batch.
  @Test(
    "An engine without atomic batches that orders entries by coarse times passes the checks of their order",
    arguments: ["order.of-repeats", "order.within-a-batch", "entries.keep-their-order"])
  func coarseTimes(_ id: String) async throws {
    let suite = ConformanceSuite("Coarse times", capabilities: [], budget: .quick) { _ in
      OrdersByCoarseTimes(base: try ReferenceEngine(claiming: []))
    }
    try await #require(suite.checks.first { $0.id == id }).run()
  }
}
