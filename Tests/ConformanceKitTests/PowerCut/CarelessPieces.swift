import Foundation
import MuseumChild
import StockroomCore
import Testing

@testable import ConformanceKit

/// An engine that breaks when the machine dies.
struct CarelessPiece: Sendable, CustomTestStringConvertible {
  let name: String
  /// The rules of which one is broken, as it happens.
  let rules: Set<ContractRule>
  let flaw: CarelessEngine.Flaw?
  let keepsLog: Bool
  /// Whether it says that it survives the death of the machine.
  let isDurable: Bool

  var testDescription: String { name }

  init(
    _ name: String, _ flaw: CarelessEngine.Flaw? = nil, keepsLog: Bool, isDurable: Bool = true,
    breaking rules: Set<ContractRule>
  ) {
    self.isDurable = isDurable
    (self.name, self.flaw, self.keepsLog, self.rules) = (name, flaw, keepsLog, rules)
  }

  /// Those that lose batches, or keep half of one.
  static let ofPowerCuts: [CarelessPiece] = [
    .init("never syncs", .neverSyncs, keepsLog: true, breaking: [.w6]),
    .init("does not sync the directory of a new file", .forgetsTheDirectory, keepsLog: true, breaking: [.w6]),
    .init("does not sync the parents of its directory", .forgetsItsParents, keepsLog: true, breaking: [.w6]),
    .init("syncs when the next write comes", .acknowledgesBeforeTheSync, keepsLog: true, breaking: [.w6]),
    .init("takes a torn batch for a whole one", .takesTornTails, keepsLog: true, breaking: [.w4, .w6]),
    .init(
      "renames a file before it has been synced", .renamesBeforeTheSync, keepsLog: false, breaking: [.w6]),
    .init("does not sync the directory after a rename", .forgetsTheRename, keepsLog: false, breaking: [.w6]),
    .init("overwrites its file in place", .overwritesInPlace, keepsLog: false, breaking: [.w6]),
  ]

  /// Those that promise no more than that the last batches may be gone, each as a whole, and do not keep that.
  static let ofProcesses: [CarelessPiece] = [
    .init(
      "takes a torn batch for a whole one, and never syncs", .takesTornTailsUnsynced, keepsLog: true,
      isDurable: false, breaking: [.w4, .w6]),
    .init("refuses a log with a hole", .refusesHoles, keepsLog: true, isDurable: false, breaking: [.w6]),
    .init("goes on behind a hole", .skipsHoles, keepsLog: true, isDurable: false, breaking: [.w6, .w4, .r6]),
  ]

  /// Those that do not.
  static let careful: [CarelessPiece] = [
    .init("never syncs, and says so", .neverSyncs, keepsLog: true, isDurable: false, breaking: []),
    .init("keeps a log", keepsLog: true, breaking: []),
    .init("writes a new file for each batch", keepsLog: false, breaking: []),
  ]

  var suite: ConformanceSuite { suite { $0 } }

  /// - Parameter wrap: What the tests see of the engine, where the child sees it as it is.
  func suite(
    wrap: @escaping @Sendable (CarelessEngine) -> any StorageEngine
  ) -> ConformanceSuite {
    let arguments =
      ["careless", keepsLog ? "log" : "copy", isDurable ? "durable" : "fast"]
      + [flaw?.rawValue].compactMap { $0 }
    return ConformanceSuite(
      name, capabilities: CarelessEngine.promises(isDurable: isDurable),
      child: ConformanceChild(product: "MuseumChild", arguments: arguments)
    ) { [keepsLog, isDurable, flaw] in
      wrap(try CarelessEngine(directory: $0, keepsLog: keepsLog, isDurable: isDurable, flaw: flaw))
    }
  }

  func outcome(of check: String) async throws -> ConformanceOutcome {
    try await #require(suite.checks.first { $0.id == check }).outcome()
  }
}

@Suite("The death of the machine", .enabled(if: (try? Strace()) != nil, "strace records what engines do"))
struct PowerCutTests {
  @Test(
    "An engine that loses what it has acknowledged is convicted",
    arguments: CarelessPiece.ofPowerCuts + CarelessPiece.ofProcesses)
  func convicts(_ piece: CarelessPiece) async throws {
    let failure = try #require(
      try await piece.outcome(of: "power.cut-while-writing-batches").failure, "It has passed.")
    #expect(piece.rules.contains(failure.rule), "\(failure.happened)")
    #expect(failure.happened.contains("after a power cut behind operation"))
  }

  @Test("An engine that syncs what it must passes", arguments: CarelessPiece.careful)
  func acquits(_ piece: CarelessPiece) async throws {
    #expect(try await piece.outcome(of: "power.cut-while-writing-batches") == .passed)
    if piece.isDurable { #expect(try await piece.outcome(of: "power.cut-while-recovering") == .passed) }
  }

  @Test("An engine that syncs too late is convicted when the power goes again after a recovery")
  func recovery() async throws {
    let piece = CarelessPiece.ofPowerCuts[3]
    #expect(try await piece.outcome(of: "power.cut-while-recovering").failure?.rule == .w6)
  }
}
