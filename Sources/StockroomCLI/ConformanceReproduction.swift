import ConformanceKit
import StockroomCore
import StockroomEngines

extension EngineOptions {
  /// The arguments for durability, directory and database, without the names of engines. They may contain a password.
  ///
  /// - Parameter hasDatabase: Whether to include the database. The command refuses it if no engine uses one.
  func surroundings(withDatabase hasDatabase: Bool) -> [String] {
    (durability == .full ? [] : ["--durability", durability.rawValue])
      + (directory.map { ["--directory", $0] } ?? [])
      + (hasDatabase ? postgresql.map { ["--postgresql", $0] } ?? [] : [])
  }

  /// A function that returns the command that reproduces a failure: it runs only the failed check, with the seed of the
  /// failure and otherwise the same options. It has `***` in place of a password.
  ///
  /// - Parameter budget: The options for the thoroughness of the checks; nil for the defaults.
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
  /// The text as one word of a command line, quoted if necessary.
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
