import ArgumentParser
import Foundation

/// A location of entries, as written on the command line: an engine and its path or URL.
///
/// ```
/// sqlite:PATH             the database data.sqlite3 in a directory, or a file that ends with .sqlite3
/// lmdb:PATH  leveldb:PATH  files:PATH
/// postgresql://…          as libpq takes it, and ?namespace=NAME
/// ```
///
/// A path is taken literally, including percent signs and blanks, except that `~/` is the home directory. Three
/// slashes, as in `sqlite:///a%20b`, begin a URL, whose percent escapes are decoded.
enum Place: Sendable {
  /// On this machine.
  case local(LocalEngine, path: String)
  /// In a PostgreSQL database.
  case postgreSQL(PostgreSQLURL)

  /// The engines whose places have a path.
  enum LocalEngine: String, CaseIterable, Sendable {
    case sqlite, lmdb, leveldb, files

    /// The components of the resolved path of a place of this engine: of the database file with SQLite, of the
    /// directory otherwise.
    fileprivate func components(ofPath path: String) -> [String] {
      let path = self == .sqlite ? SQLiteLocation(path: path)?.file ?? path : path
      return URL(commandLinePath: path).resolvedComponents
    }

    /// The name of a place of this engine in messages.
    var placeTitle: String {
      switch self {
      case .sqlite: "SQLite database"
      case .lmdb: "LMDB database"
      case .leveldb: "LevelDB database"
      case .files: "Files directory"
      }
    }

    /// ``placeTitle`` with its article.
    var placeTitleWithArticle: String {
      switch self {
      case .sqlite, .lmdb: "an \(placeTitle)"
      case .leveldb, .files: "a \(placeTitle)"
      }
    }
  }

  /// Whether the place is in PostgreSQL, whose read-only engine has no transactions.
  var isPostgreSQL: Bool {
    if case .postgreSQL = self { true } else { false }
  }

  /// Whether both are the same place. Local paths are compared after links have been resolved; PostgreSQL places are
  /// the same if their URLs are.
  func isSame(as other: Place) -> Bool {
    switch (self, other) {
    case (.local(let engine, let path), .local(let otherEngine, let otherPath)):
      engine == otherEngine && engine.components(ofPath: path) == engine.components(ofPath: otherPath)
    case (.postgreSQL(let url), .postgreSQL(let otherURL)): url == otherURL
    default: false
    }
  }

  static let spellings = "sqlite:PATH, lmdb:PATH, leveldb:PATH, files:PATH, postgresql://HOST/DATABASE"

  /// Parses a place as written on the command line.
  ///
  /// - Throws: `ValidationError` that says what is wrong and shows no password.
  init(_ text: String) throws {
    guard let scheme = text.prefix(while: { $0 != ":" && $0 != "/" }).lowercasedIfScheme,
      text.dropFirst(scheme.count).first == ":"
    else { throw Self.withoutEngine(text) }
    let rest = String(text.dropFirst(scheme.count + 1))
    switch scheme {
    case "postgresql", "postgres":
      self = .postgreSQL(try PostgreSQLURL(rest))
    case "memory":
      throw ValidationError(
        "The contents of memory: are lost when the command ends. Places: \(Self.spellings).")
    default:
      guard let engine = LocalEngine(rawValue: scheme) else {
        if Self.hasPassword(text) { throw Self.withoutEngine(text) }
        throw ValidationError(
          "There is no engine for places that begin with \(scheme):. Places: \(Self.spellings).")
      }
      self = .local(engine, path: try Self.path(rest, scheme))
    }
  }

  /// Whether the text looks like a list of settings, a form of connection string that libpq accepts and this command
  /// does not.
  private static func hasPassword(_ text: String) -> Bool { text.contains(/(?i)password\s*=/) }

  private static func withoutEngine(_ text: String) -> ValidationError {
    if text.isEmpty { return ValidationError("The place is empty. Places: \(spellings).") }
    if hasPassword(text) {
      return ValidationError("A PostgreSQL place is a URL. Places: \(spellings).")
    }
    let there = LocalEngine.allCases.filter { $0.hasPlace(atPath: text) }
    let spellings =
      there.isEmpty ? self.spellings : there.map { "\($0.rawValue):\(text)" }.joined(separator: ", ")
    return ValidationError("\(text.escaped) names no engine. Places: \(spellings).")
  }

  private static func path(_ text: String, _ scheme: String) throws -> String {
    guard !text.isEmpty else { throw ValidationError("\(scheme): needs a path, such as \(scheme):notes.") }
    if text.hasPrefix("///") {
      guard let path = String(text.dropFirst(2)).removingPercentEncoding, !path.utf8.contains(0) else {
        throw ValidationError(
          "\(scheme):\(text.escaped) is not a valid URL: a percent sign must be followed by two hexadecimal digits, and the "
            + "decoded path must be UTF-8 without a zero byte. Write \(scheme):PATH for a path that is taken as it is."
        )
      }
      return path
    }
    if text.hasPrefix("//") {
      throw ValidationError(
        "\(scheme):\(text.escaped) names a host, and \(scheme): is on this machine. Write \(scheme):PATH or "
          + "\(scheme):///PATH.")
    }
    return text.withHomeDirectory
  }
}

extension Place: CustomStringConvertible {
  /// The place for messages, without the user and the password.
  var description: String {
    switch self {
    case .local(let engine, let path): "\(engine.rawValue):\(path.escaped)"
    case .postgreSQL(let url): url.description
    }
  }
}

extension Substring {
  /// The text in lower case, if it can be the scheme of a URL.
  fileprivate var lowercasedIfScheme: String? {
    guard let first = utf8.first, UInt8(ascii: "A")...UInt8(ascii: "Z") ~= first & 0xDF,
      utf8.allSatisfy({ $0 < 128 })
    else { return nil }
    return lowercased()
  }
}
