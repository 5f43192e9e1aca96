import Foundation
import StockroomCore

// Corrupted files: rule F2.

extension CheckDefinition {
  @CheckList static var corruptionChecks: [CheckDefinition] {
    for corruption in NamedCorruption.allCases {
      Check(
        .f2, "corruption.\(corruption.rawValue)",
        corruption.isCut
          ? "a closed store with a file \(corruption.what) throws corrupted when it is opened or read, or "
            + "all entries are there (without durableWrites: those up to some batch, at least one)"
          : "a store with a file \(corruption.what) throws corrupted when it is opened or read, or returns "
            + "what is still there",
        needs: .persistent
      ) { context in
        var run = try await CorruptionRun(in: context, script: .short)
        for file in run.files(atMost: max(12, context.budget.corruptions / 5)) where run.violations.isEmpty {
          try await run.check(corruption.corruption(to: file, size: run.size(of: file)))
        }
        try run.finish("")
      }
    }
    Check(
      .f2, "corruption.anywhere",
      "wherever a file is corrupted, a read returns the right value or throws corrupted",
      needs: .detectsCorruption
    ) { context in
      var run = try await CorruptionRun(in: context, script: .short)
      for file in run.files {
        let size = run.size(of: file)
        let kinds: [Corruption.Kind] =
          (0..<12).map { .bytesChanged(at: size * $0 / 12) }
          + run.formerEnds(of: file).map { .zeroed(at: $0, count: size - $0) }
        for kind in kinds where run.violations.isEmpty {
          try await run.check(Corruption(file: file, kind: kind))
        }
      }
      try run.finish("")
    }
    Check(
      .f2, "corruption.found-by-verify",
      "wherever a file is corrupted, either opening or verify() throws corrupted, or no later read does; "
        + "without corruption, verify() does not throw", needs: .persistent
    ) { context in
      var run = try await CorruptionRun(in: context, script: .short)
      try await run.checkVerifyingUncorrupted()
      for file in run.files(atMost: 8) {
        let size = run.size(of: file)
        let kinds: [Corruption.Kind] =
          (0..<6).map { .bytesChanged(at: size * $0 / 6) }
          + [.removed, .cut(to: 0), .cut(to: size / 2), .zeroed(at: 0, count: 512)]
        for kind in kinds where run.violations.isEmpty {
          try await run.check(Corruption(file: file, kind: kind), isVerified: true)
        }
      }
      try run.finish("")
    }
    Check(
      .f2, "corruption.of-many-found-by-verify",
      "wherever a file of a store of 1,100 entries is corrupted, either opening or verify() throws "
        + "corrupted, or no later read does", needs: .persistent
    ) { context in
      // A hanging engine could not be distinguished from one that is slow for each entry.
      let affordable = try await context.affordableEntries(within: 5)
      if affordable.reads < 1_100 || affordable.writes < 100 {
        throw Skip(reason: "The engine is too slow: writing and reading 1,100 entries takes too long.")
      }
      var run = try await CorruptionRun(in: context, script: .many)
      let count = context.byLevel(quick: 4, standard: 8, exhaustive: 32)
      for file in run.files(atMost: 4) {
        let pages = run.size(of: file) / 4_096
        for page in Set((1...count).map { pages * $0 / (count + 1) }).sorted() where run.violations.isEmpty {
          context.noteProgress()
          try await run.check(
            Corruption(file: file, kind: .zeroed(at: page * 4_096, count: 512)), isVerified: true)
        }
      }
      try run.finish("")
    }
    Check(
      .f2, "corruption.at-random",
      "whatever corrupts a file of a closed store, opening, reading and writing neither trap nor hang, and "
        + "throw corrupted or return the remaining entries, at least one; with detectsCorruption, no value "
        + "is wrong", needs: .persistent, needsWorker: true
    ) { context in
      var run = try await CorruptionRun(in: context, script: .long, mustHaveWorker: true)
      let seed = context.budget.seed
      for number in 0..<context.budget.corruptions where run.violations.count < 5 {
        context.noteProgress()
        try await run.check(run.corruption(number: number, seed: seed))
      }
      try run.finish(", seed \(seed)")
    }
  }
}

/// The corruptions that rule F2 names, and those that leave nothing of a file.
private enum NamedCorruption: String, CaseIterable, Sendable {
  case truncatedFile = "truncated-file"
  case shortenedFile = "shortened-file"
  case emptiedFile = "emptied-file"
  case zeroedHeader = "zeroed-header"
  case replacedFile = "replaced-file"
  case removedFile = "removed-file"

  var what: String {
    switch self {
    case .truncatedFile: "cut to half its length"
    case .shortenedFile: "that lacks its last hundred bytes"
    case .emptiedFile: "cut to no bytes at all"
    case .zeroedHeader: "whose first bytes are zero"
    case .replacedFile: "that is a text"
    case .removedFile: "that is missing"
    }
  }

  var isCut: Bool { [.truncatedFile, .shortenedFile, .emptiedFile].contains(self) }

  func corruption(to file: String, size: Int) -> Corruption {
    let kind: Corruption.Kind =
      switch self {
      case .truncatedFile: .cut(to: size / 2)
      // Less than a page.
      case .shortenedFile: .cut(to: max(0, size - 100))
      case .emptiedFile: .cut(to: 0)
      case .zeroedHeader: .zeroed(at: 0, count: 512)
      case .replacedFile: .replaced(by: Corruption.text, name: "a text")
      case .removedFile: .removed
      }
    return Corruption(file: file, kind: kind)
  }
}
