import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("The expected contents after batches")
struct ExpectedContentsTests {
  private let batches = NumberedBatches(seed: 7)
  private static let all = ReferenceEngine.promises
  private let beginning = Date()

  /// The entries after this many batches and these additional operations.
  private func entries(after number: Int, and more: [StorageOperation] = []) async throws -> [StorageEntry] {
    let engine = try ReferenceEngine()
    for number in 0..<number { try await engine.apply(batches.operations(of: number + 1)) }
    try await engine.apply(more)
    return try await engine.readAllEntries()
  }

  private func expected(_ capabilities: EngineCapabilities = all, after number: Int) -> ExpectedContents {
    ExpectedContents(after: number, of: batches, in: capabilities, since: beginning)
  }

  private func rule(_ body: () throws -> Void) -> ContractRule? {
    let violation = #expect(throws: Violation.self) { try body() }
    return violation?.rule
  }

  @Test("Batches follow from their seed and number, grow, shrink, and have values of every size")
  func contents() {
    let operations = (1...300).flatMap(batches.operations)
    let values = operations.compactMap(\.written).filter { $0.key != NumberedBatches.marker }.map(\.data)
    #expect(Set(values).count == values.count)
    #expect(values.contains { $0.count > 100_000 })
    #expect(values.count { $0.count > 9_000 } > 20)
    #expect(operations.contains { $0.isRemovalOfEverything })
    var contents = expected(after: 0)
    let counts = (1...240).map { number in
      contents.apply(batches.operations(of: number))
      return contents.count
    }
    #expect(zip(counts, counts.dropFirst()).contains { $1 < $0 })
    #expect((counts.max() ?? 0) > 100)
    let again = NumberedBatches(seed: 7).operations(of: 12).compactMap(\.written?.data)
    #expect(again == batches.operations(of: 12).compactMap(\.written?.data))
  }

  @Test("The marker identifies the last batch")
  func marker() async throws {
    let engine = try ReferenceEngine()
    #expect(try await NumberedBatches.last(in: engine) == 0)
    for number in 1...5 { try await engine.apply(batches.operations(of: number)) }
    #expect(try await NumberedBatches.last(in: engine) == 5)
    try await engine.write(Data("nonsense".utf8), key: NumberedBatches.marker)
    await #expect(throws: Violation.self) { try await NumberedBatches.last(in: engine) }
  }

  @Test("All of the batch in progress may be there, or nothing", arguments: 0..<40)
  func wholeBatches(after number: Int) async throws {
    let next = batches.operations(of: number + 1)
    for found in [try await entries(after: number), try await entries(after: number + 1)] {
      var expected = expected(after: number)
      try expected.check(found, underWay: next)
      // The contents that were found are expected from now on.
      try expected.check(found)
    }
  }

  @Test("Half of a batch is a violation only with atomicBatches", arguments: 0..<40)
  func halfBatches(after number: Int) async throws {
    let next = batches.operations(of: number + 1)
    // If the entry of a batch of one and the marker is the removal of an absent key, it has no visible intermediate
    // state.
    let middles = TestRun.isExhaustive ? Set(1..<next.count) : [1, next.count / 2, next.count - 1]
    for count in middles
    where (1..<next.count).contains(count) && next.prefix(count).contains(where: { $0.written != nil }) {
      let half = try await entries(after: number, and: Array(next.prefix(count)))
      var strict = expected(after: number)
      #expect(rule { try strict.check(half, underWay: next) } == .w4)
      var lenient = expected(.persistent, after: number)
      try lenient.check(half, underWay: next)
    }
  }

  @Test("Lost, invented and changed entries are distinguished from half a batch")
  func wrongValues() async throws {
    let (found, next) = (try await entries(after: 20), batches.operations(of: 21))
    let untouched = try #require(
      found.firstIndex { entry in !next.contains { $0.written?.key == entry.key || $0.removed == entry.key } }
    )
    var wrong = [found, found, found, found]
    wrong[0].remove(at: untouched)
    wrong[1][untouched].data.append(0)
    wrong[2].append(StorageEntry(key: key("new"), data: Data(), createdAt: Date(), updatedAt: Date()))
    wrong[3] = try await entries(after: 19)
    for entries in wrong {
      var expected = expected(after: 20)
      #expect(rule { try expected.check(entries, underWay: next) } == .w6)
    }
    var twice = expected(after: 20)
    #expect(rule { try twice.check(found + [found[0]]) } == .r3)
  }

  @Test("The order must be that of the first writes, except for single writes with equal times")
  func order() async throws {
    var found = try await entries(after: 20)
    found.swapAt(3, 4)
    var strict = expected(after: 20)
    #expect(rule { try strict.check(found) } == .r6)
    found[3].createdAt = found[4].createdAt
    var lenient = expected(.persistent, after: 20)
    try lenient.check(found)
    var stillStrict = expected(after: 20)
    #expect(rule { try stillStrict.check(found) } == .r6)
  }

  @Test("A sorted index or a count that differs from the entries is a violation")
  func otherWays() async throws {
    let base = try ReferenceEngine()
    for number in 1...3 { try await base.apply(batches.operations(of: number)) }
    #expect(try await ExpectedContents.agreedEntries(of: base).isEmpty == false)
    let disordered = await #expect(throws: Violation.self) {
      try await ExpectedContents.agreedEntries(of: DriftedIndex(base: base))
    }
    #expect(disordered?.rule == .r5)
    let doubled = await #expect(throws: Violation.self) {
      try await ExpectedContents.agreedEntries(of: CountsTwice(base: base))
    }
    #expect(doubled?.rule == .r3)
  }

  @Test("It waits for a server that is still working for a dead client")
  func lateWrites() async throws {
    let base = try ReferenceEngine()
    let task = ReadEverything(place: URL(filePath: "/"))
    let found = MutexProtected<[StorageEntry]>([])
    try await task.run(makeEngine: { _ in FinishingEngine(base: base) }) { sent in
      found.withLock { $0 += sent.map(\.entry) }
    }
    #expect(found.withLock { $0.map(\.key) } == [key("late")])
  }

  @Test("Timestamps do not change without a write, never go back, and are current")
  func timestamps() async throws {
    let found = try await entries(after: 20)
    func check(_ change: (inout StorageEntry) -> Void) throws {
      var expected = expected(after: 20)
      try expected.check(found)
      var changed = found
      change(&changed[5])
      try expected.check(changed)
    }
    try check { _ in }
    #expect(rule { try check { $0.createdAt -= 0.001 } } == .w2)
    #expect(rule { try check { $0.updatedAt += 0.001 } } == .w2)
    for change in [{ $0.createdAt = .distantPast }, { $0.updatedAt += 3_600 }]
      as [(inout StorageEntry) -> Void]
    {
      var wrong = found
      change(&wrong[5])
      var unseen = expected(after: 20)
      #expect(rule { try unseen.check(wrong) } == .w2)
    }
  }
}

/// Scans return two keys in the wrong order.
private struct DriftedIndex: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var entries = try await base.scan(range, limit: limit)
    if entries.count > 1 { entries.swapAt(0, 1) }
    return entries
  }
}

/// Simulates a server that is still performing a dead client's write during the first read of everything.
private struct FinishingEngine: FaultyEngine {
  let base: ReferenceEngine
  var capabilities: EngineCapabilities { base.capabilities.union(.networked) }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    if entries.isEmpty { try await base.write(Data(), key: key("late")) }
    return entries
  }
}

private struct CountsTwice: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] {
    let values = try await base.readAllData()
    return values + values.prefix(1)
  }
}
