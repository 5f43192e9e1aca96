import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomLMDB

@Suite("LMDB's reader table") struct LMDBReaderTableTests {
  @Test("Any number of concurrent verifications uses at most 32 slots of the reader table")
  func verifications() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<10_000).map { (key($0), value($0)) })
    let environment = engine.shared.environment
    var reads = try takeAllPlaces(of: environment)
    try #require(reads.count > 40)
    for read in reads.suffix(40) { environment.end(read) }
    reads.removeLast(40)
    defer {
      for read in reads { environment.end(read) }
      // The environment stays open while an engine refers to it.
      withExtendedLifetime(engine) {}
    }

    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<64 { group.addTask { try await engine.verify() } }
      try await group.waitForAll()
    }
    #expect(try await engine.read(key: key(1)) == value(1))
  }

  /// Begins reads until the table has no free slot.
  private func takeAllPlaces(of environment: LMDBEnvironment) throws -> [LMDBLongRead] {
    var reads: [LMDBLongRead] = []
    while true {
      do {
        guard case .value(let read) = try environment.begin() else { return reads }
        reads.append(read)
      } catch let error as StorageError where error.code == .locked {
        return reads
      }
    }
  }
}
