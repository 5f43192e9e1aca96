import Foundation
import MuseumChild
import StockroomCore
import Testing

@testable import ConformanceKit

/// An engine that breaks when a file is damaged, something runs out, or the clock goes back.
struct FragilePiece: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  let flaw: FragileEngine.Flaw
  /// The checks that convict it every time.
  let checks: Set<String>

  var testDescription: String { "\(rule): \(name)" }

  init(_ rule: ContractRule, _ name: String, _ flaw: FragileEngine.Flaw, by checks: String...) {
    (self.rule, self.name, self.flaw, self.checks) = (rule, name, flaw, Set(checks))
  }

  static let all: [FragilePiece] = [
    .init(
      .f2, "traps on damage", .trapsOnDamage, by: "damage.at-random", "damage.zeroed-header",
      "damage.anywhere", "damage.found-by-verify"
    ),
    .init(.f2, "hangs on damage", .hangsOnDamage, by: "damage.replaced-file"),
    .init(.f2, "starts anew when damaged", .emptiesOnDamage, by: "damage.at-random", "damage.truncated-file"),
    .init(.f2, "does not look at sums", .ignoresSums, by: "damage.at-random"),
    .init(
      .f2, "calls damage an input/output error", .callsDamageIO, by: "damage.at-random", "damage.emptied-file"
    ),
    .init(.f2, "removes what is damaged", .removesWhatIsDamaged, by: "damage.at-random"),
    .init(
      .f1, "writes over what is there", .writesInPlace, by: "faults.full-disk-at-every-step",
      "faults.file-size-limit"),
    .init(.f1, "writes batches in parts", .writesBatchesInParts, by: "faults.full-disk-at-every-step"),
    .init(.f1, "stays full", .staysFull, by: "faults.full-disk-at-every-step", "faults.file-size-limit"),
    .init(.f1, "forgets everything when full", .forgetsWhenFull, by: "faults.full-disk-at-every-step"),
    .init(
      .f1, "calls a full disk closed", .callsFullClosed, by: "faults.full-disk-at-every-step",
      "faults.file-size-limit"),
    .init(
      .f1, "calls a full disk an input/output error when it is opened", .cannotOpenWhenFull,
      by: "faults.full-disk-at-every-step"),
    .init(
      .o4, "keeps descriptors when opening fails", .leaksDescriptors,
      by: "dropping.after-many-failed-openings"),
    .init(.o2, "is empty without descriptors", .emptyWithoutDescriptors, by: "opening.without-descriptors"),
    .init(
      .r4, "finds nothing without descriptors", .nilWithoutDescriptors, by: "faults.no-descriptors-while-open"
    ),
    .init(.r4, "traps without descriptors", .trapsWithoutDescriptors, by: "faults.no-descriptors-while-open"),
    .init(
      .o2, "takes a lack of descriptors for damage", .callsDescriptorsCorrupted,
      by: "opening.without-descriptors"),
    .init(
      .o2, "does not say which file", .concealsPath, by: "opening.without-permission",
      "opening.without-descriptors"),
    .init(.o2, "does not say why", .concealsCause, by: "opening.without-permission"),
    .init(.o2, "is empty without permission", .emptyWithoutPermission, by: "opening.without-permission"),
    .init(
      .f4, "forgets everything when it is refused", .forgetsWhenRefused, by: "refused.read-only-directory"),
    .init(.w2, "lets updatedAt follow the clock", .updatesBackwards, by: "clock.set-back"),
    .init(.w2, "remembers times until it is closed", .remembersTimesUntilClosed, by: "clock.set-back"),
    .init(.r6, "lists entries by their time", .listsByTime, by: "clock.set-back-and-order"),
  ]
}

extension ConformanceSuite {
  /// The checks of damage, scarcity and clocks for an engine of the museum.
  static func fragile(_ name: String, _ flaw: FragileEngine.Flaw? = nil) -> ConformanceSuite {
    ConformanceSuite(
      name, capabilities: FragileEngine.promises,
      timeLimit: flaw == .hangsOnDamage ? .seconds(6) : .seconds(120),
      child: ConformanceChild(
        product: "MuseumChild", arguments: ["fragile"] + (flaw.map { [$0.rawValue] } ?? []))
    ) { try FragileEngine(directory: $0, flaw: flaw) }
  }

  /// The checks that have a process of their own.
  fileprivate var fragileChecks: [ConformanceCheck] {
    let others: Set = [
      "faults.full-disk-at-every-step", "faults.file-size-limit", "faults.no-descriptors-while-open",
      "opening.without-permission", "opening.without-descriptors", "dropping.after-many-failed-openings",
      "refused.read-only-directory",
    ]
    return checks.filter {
      $0.id.hasPrefix("damage.") || $0.id.hasPrefix("clock.") || others.contains($0.id)
    }
  }
}

@Suite("Engines that break when a file is damaged, something runs out, or the clock goes back")
struct FragileEngineTests {
  @Test("Each is convicted, of its rule, by the checks that look for that", arguments: FragilePiece.all)
  func isConvicted(_ piece: FragilePiece) async throws {
    let suite = ConformanceSuite.fragile(piece.name, piece.flaw)
    for check in suite.fragileChecks where piece.checks.contains(check.id) {
      switch await check.outcome() {
      case .passed: Issue.record("\(check.id) did not convict it")
      case .failed(let failure): #expect(failure.rule == piece.rule, "\(failure)")
      // A clock that can be set, and file systems to fill up, are not everywhere.
      case .skipped(let reason): #expect(!reason.isEmpty)
      case .couldNotRun(let reason): Issue.record("\(check.id) could not run: \(reason)")
      }
    }
  }

  @Test("Every check of the subject convicts some engine")
  func isComplete() {
    let convicting = FragilePiece.all.reduce(into: Set()) { $0.formUnion($1.checks) }
    #expect(Set(ConformanceSuite.fragile("").fragileChecks.map(\.id)).subtracting(convicting) == [])
  }

  @Test("A correct engine passes", arguments: ConformanceSuite.fragile("Fragile").fragileChecks)
  func passes(_ check: ConformanceCheck) async throws { try await check.run() }
}
