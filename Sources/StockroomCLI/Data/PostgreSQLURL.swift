import ArgumentParser
import Foundation

/// A place in a PostgreSQL database: a connection URL as libpq takes it, in which `namespace` may be one more parameter.
struct PostgreSQLURL: Sendable, Equatable {
  static let defaultNamespace = "stockroom"

  let namespace: String
  /// The user and the password, with the @ behind them; empty if there are none.
  private let credentials: String
  private let authorityAndPath: String
  private let parameters: [String]

  /// - Parameter rest: What follows the scheme and its colon.
  /// - Throws: `ValidationError` that does not repeat the URL, which may contain a password.
  init(_ rest: String) throws {
    guard rest.hasPrefix("//") else {
      throw ValidationError(
        "A PostgreSQL place begins with postgresql:// and goes on with the host and the database.")
    }
    let text = rest.dropFirst(2)
    // As libpq finds out where the user and the password end: a question mark may be part of them.
    let stop = text.firstIndex { $0 == "@" || $0 == "/" }
    let credentials = stop.flatMap { text[$0] == "@" ? text[...$0] : nil } ?? text.prefix(0)
    let parts = text[credentials.endIndex...].split(
      separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    authorityAndPath = parts.first.map(String.init) ?? ""
    // The rest of a password, for all that is known.
    let isCutPassword =
      credentials.isEmpty && !authorityAndPath.contains("/")
      && parts.dropFirst().contains { $0.contains("@") }
    guard !authorityAndPath.contains("@"), !isCutPassword else {
      throw ValidationError(
        "In the user and the password of a PostgreSQL place, write @ as %40, / as %2F and ? as %3F. Better, keep the password in "
          + "PGPASSWORD or ~/.pgpass.")
    }

    var namespace: String?
    var parameters: [Substring] = []
    for parameter in parts.dropFirst().first?.split(separator: "&") ?? [] {
      guard parameter.hasPrefix("namespace=") else {
        parameters.append(parameter)
        continue
      }
      guard namespace == nil,
        let name = String(parameter.dropFirst("namespace=".count)).removingPercentEncoding,
        !name.isEmpty
      else { throw ValidationError("The namespace of a PostgreSQL place is given once, as ?namespace=NAME.") }
      namespace = name
    }
    self.namespace = namespace ?? Self.defaultNamespace
    self.credentials = String(credentials)
    self.parameters = parameters.map(String.init)
  }

  /// What libpq gets. It may contain a password.
  var connection: String { url(credentials, parameters) }

  /// The same, with `***` in place of every password.
  var connectionWithoutPasswords: String {
    let user = credentials.prefix { $0 != ":" && $0 != "@" }
    return url(
      credentials.contains(":") ? "\(user):***@" : credentials, parameters.map(Self.hidingPassword))
  }

  private func url(_ credentials: String, _ parameters: [String]) -> String {
    let query = parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&")
    return "postgresql://\(credentials)\(authorityAndPath)\(query)"
  }

  private static func hidingPassword(_ parameter: String) -> String {
    let name = String(parameter.prefix { $0 != "=" })
    // It may have percent escapes. That of a certificate's key is sslpassword.
    let isPassword = name.removingPercentEncoding?.hasSuffix("password") ?? true
    return isPassword ? "\(name)=***" : parameter
  }
}

extension PostgreSQLURL: CustomStringConvertible {
  /// The hosts, the database and the namespace.
  var description: String { "postgresql://\(authorityAndPath.escaped)?namespace=\(namespace.escaped)" }
}

extension String {
  /// An argument of a command, with `***` in place of the passwords of a connection to PostgreSQL: of a URL, or of a list of settings, as libpq
  /// takes them.
  var hidingPasswords: String {
    guard
      let scheme = range(of: #"postgres(ql)?:(?=//)"#, options: [.regularExpression, .caseInsensitive])
    else { return hidingPasswordSettings }
    let url = try? PostgreSQLURL(String(self[scheme.upperBound...]))
    return String(self[..<scheme.lowerBound]).hidingPasswordSettings
      + (url?.connectionWithoutPasswords ?? "postgresql:***")
  }

  /// The text of a message without passwords, in which the arguments of this process that are URLs of PostgreSQL are as places are
  /// shown. For messages of the parser of arguments, which repeat an argument.
  var withoutPasswords: String { withoutPasswords(of: CommandLine.arguments) }

  /// The same, for a list of arguments.
  func withoutPasswords(of arguments: [String]) -> String {
    // A URL that is shown already stays, although an argument may be what it begins with.
    var replacements: [(written: String, shown: String)] = []
    for argument in arguments {
      guard let (written, shown) = argument.textWithPassword else { continue }
      replacements.append((written: written, shown: shown))
      replacements.append((written: shown, shown: shown))
    }
    replacements.sort { $0.written.count > $1.written.count }
    var text = ""
    var rest = self[...]
    while let first = rest.first {
      if let found = replacements.first(where: { rest.hasPrefix($0.written) }) {
        text += found.shown
        rest = rest.dropFirst(found.written.count)
      } else {
        text.append(first)
        rest = rest.dropFirst()
      }
    }
    return text.hidingPasswordSettings
  }

  /// What of an argument may contain a password, as a message repeats it, and how it is shown. Nil if nothing can.
  private var textWithPassword: (written: String, shown: String)? {
    guard
      let start = range(of: #"postgres(ql)?:"#, options: [.regularExpression, .caseInsensitive])
    else {
      // What is escaped is no longer written as libpq takes it.
      let hidden = hidingPasswordSettings
      return hidden == self ? nil : (written: escaped, shown: hidden.escaped)
    }
    let rest = self[start.upperBound...]
    let shown = (try? PostgreSQLURL(String(rest)).description) ?? "postgresql:"
    return (written: String(self[start.lowerBound...]), shown: shown)
  }

  /// The text with `***` for what follows `password=`, blanks around the sign allowed: up to the next blank that has no backslash before
  /// it, or between quotes.
  private var hidingPasswordSettings: String {
    let setting =
      /(?is)(password[ \t\n\u{B}\f\r]*=[ \t\n\u{B}\f\r]*)(?:'(?:[^'\\]|\\.)*'?|(?:\\.|[^ \t\n\u{B}\f\r])*)/
      .matchingSemantics(.unicodeScalar)
    return replacing(setting) { "\($0.1)***" }
  }
}
