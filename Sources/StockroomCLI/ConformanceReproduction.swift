import ConformanceKit
import StockroomCore
import StockroomEngines

extension EngineOptions {
  /// The options, as they are written, but for the engines. A password may be among them.
  ///
  /// - Parameter hasDatabase: Whether the database is one of them, which is refused for engines that do not use it.
  func surroundings(withDatabase hasDatabase: Bool) -> [String] {
    (durability == .full ? [] : ["--durability", durability.rawValue])
      + (directory.map { ["--directory", $0] } ?? [])
      + (hasDatabase ? postgresql.map { ["--postgresql", $0] } ?? [] : [])
  }

  /// Says which command makes a failure happen again: its check alone, with its seed, and otherwise as it was made. In place of a
  /// password it has `***`.
  ///
  /// - Parameter budget: How hard the checks tried; nil if as usual.
  func reproduction(_ budget: BudgetOptions? = nil) -> ConformanceResults.Reproduction {
    let (anywhere, inDatabase) = (surroundings(withDatabase: false), surroundings(withDatabase: true))
    return { report, failure in
      let engine = EngineCatalog.name(titled: report.name)
      let arguments =
        ["--engine", engine, "--check", failure.check]
        + (budget?.arguments(seed: failure.seed) ?? ["--seed", "\(failure.seed)"])
        + (EngineCatalog.usesDatabase(engine) ? inDatabase : anywhere)
      return "stockroom conformance " + arguments.map(\.hidingPasswords.quotedForShell).joined(separator: " ")
    }
  }
}

extension String {
  /// The text as one word of a command line.
  var quotedForShell: String {
    let isPlain =
      !isEmpty
      && utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): true
        default: "/._-".utf8.contains(byte)
        }
      }
    return isPlain ? self : "'" + replacingScalar("'", with: #"'\''"#) + "'"
  }
}
