import ConformanceKit
import Foundation
import StockroomCore
import Testing

@Suite("Generated histories")
struct HistoryTests {
  @Test(
    "convict engines that go wrong in few sequences, with the shortest of these", arguments: HistoryPiece.all)
  func convict(_ exhibit: HistoryPiece) async throws {
    let failure = try #require(
      await HistoryFailures.shared.failure(of: exhibit), "No history has convicted it.")
    // Where the clock decides which of two rules is seen to be broken first, it may be either.
    #expect(
      failure.rule == exhibit.piece.rule || exhibit.piece.also.contains(failure.rule), "\(failure.happened)")
    // What depends on the clock need not happen again each time, and then is not shrunk.
    let isShortest = failure.numberOfCalls.map { $0 <= exhibit.calls } ?? (failure.rule == .w2)
    #expect(isShortest || failure.rule != exhibit.piece.rule, "\(failure.happened)")
  }

  @Test("Every check of generated histories convicts an engine")
  func everyCheckConvicts() {
    #expect(Set(HistoryPiece.all.map(\.check)) == Set(ReferenceEngine.historyChecks))
  }

  @Test("are the same for the same seed")
  func sameSeed() async throws {
    let piece = try #require(
      HistoryPiece.all.first { $0.piece.name == "spares the batch that removes everything" }
    ).piece
    let first = await piece.historyChecks().first { $0.id == "histories.batches" }?.outcome()
    let second = await piece.historyChecks().first { $0.id == "histories.batches" }?.outcome()
    #expect(first?.failure != nil)
    #expect(first == second)
  }

  @Test(
    "fail at once with the seed that a failure names",
    arguments: ["counts repeats", "keeps 1 MiB of a value"])
  func namedSeed(_ name: String) async throws {
    let exhibit = try #require(HistoryPiece.all.first { $0.piece.name == name })
    var effort = ConformanceEffort()
    effort.seed = 7
    effort.operations = 20_000
    let failure = try #require(await exhibit.piece.firstConviction(effort, of: exhibit.check))
    effort.seed = failure.seed
    // No more than one history.
    effort.operations = 1_000
    let again = try #require(await exhibit.piece.firstConviction(effort, of: failure.check))
    #expect(again.happened == failure.happened)
  }

  @Test("that go wrong only once are reported with their seed")
  func unsteady() async throws {
    let memory = GoesWrongOnce.Memory()
    let piece = MuseumPiece(.l2, "goes wrong once") { GoesWrongOnce(base: $0, memory: memory) }
    let failure = try #require(await piece.firstConviction())
    #expect(failure.rule == .l2)
    #expect(failure.happened.contains("of the history of seed 1; it did not happen each time"))
  }

  @Test("go on for as long as the effort says")
  func duration() async throws {
    var effort = ConformanceEffort()
    effort.operations = 1
    effort.duration = .seconds(2)
    let opened = MutexProtected(0)
    let piece = MuseumPiece(.w1, "counts how often it is opened") { base in
      opened.withLock { $0 += 1 }
      return base
    }
    let start = ContinuousClock.now
    let check = try #require(piece.historyChecks(effort).first)
    #expect(await check.outcome() == .passed)
    #expect(ContinuousClock.now - start >= .seconds(2))
    #expect(opened.withLock { $0 } > 1)
  }

  @Test("leave nothing behind")
  func leavesNothing() async throws {
    let parent = FileManager.default.temporaryDirectory.appending(path: "kit-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: parent) }
    for piece in HistoryPiece.all.map(\.piece) where piece.capabilities.contains(.persistent) {
      for check in piece.historyChecks(in: parent) { _ = await check.outcome() }
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent.path(percentEncoded: false)) == [])
  }
}

extension ReferenceEngine {
  /// Every check of histories, by its identifier.
  fileprivate static var historyChecks: [String] {
    MuseumPiece(persistent: .w1, "correct").historyChecks().map(\.id)
  }
}

extension MuseumPiece {
  func historyChecks(
    _ effort: ConformanceEffort = ConformanceEffort(),
    in directory: URL = FileManager.default.temporaryDirectory
  ) -> [ConformanceCheck] {
    ConformanceSuite(
      name, capabilities: capabilities, workingDirectory: directory, effort: effort, makeEngine: makeEngine
    ).checks.filter { $0.id.hasPrefix("histories.") }
  }

  /// The failure of the first check of histories that fails, or of one of them.
  func firstConviction(
    _ effort: ConformanceEffort = ConformanceEffort(), of id: String? = nil
  ) async -> ConformanceFailure? {
    for check in historyChecks(effort) where id == nil || check.id == id {
      if let failure = await check.outcome().failure { return failure }
    }
    return nil
  }
}

extension ConformanceFailure {
  /// The number of calls of the shortest history.
  var numberOfCalls: Int? { number(between: "shortest history that shows it (", and: " call") }

  /// The test that shows it.
  var source: Substring? { proof?[...] }

  private func number<Number: FixedWidthInteger>(between start: String, and end: String) -> Number? {
    guard let start = happened.firstRange(of: start) else { return nil }
    let rest = happened[start.upperBound...]
    guard let end = rest.firstRange(of: end) else { return nil }
    return Number(rest[..<end.lowerBound])
  }
}
