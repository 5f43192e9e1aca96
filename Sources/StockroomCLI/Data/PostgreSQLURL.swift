import ArgumentParser
import Foundation

/// A place in a PostgreSQL database: a connection URL as libpq accepts it, with an optional additional parameter
/// `namespace`.
struct PostgreSQLURL: Sendable, Equatable {
  static let defaultNamespace = "stockroom"

  let namespace: String
  /// The user and the password, followed by the @; empty if there are none.
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
    // As in libpq, the user and the password end at the first @, unless a slash comes before it. They may contain a
    // question mark.
    let stop = text.firstIndex { $0 == "@" || $0 == "/" }
    let credentials = stop.flatMap { text[$0] == "@" ? text[...$0] : nil } ?? text.prefix(0)
    let parts = text[credentials.endIndex...].split(
      separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    authorityAndPath = parts.first.map(String.init) ?? ""
    // If the URL has no path, an @ in its parameters may be the end of a password that contains both a question mark
    // and a slash.
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

  /// The connection string for libpq. It may contain a password.
  var connection: String { url(credentials, parameters) }

  /// The ``connection`` with `***` in place of every password.
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
    // The name may contain percent escapes. `sslpassword` is the password of a certificate's key.
    let isPassword = name.removingPercentEncoding?.hasSuffix("password") ?? true
    return isPassword ? "\(name)=***" : parameter
  }
}

extension PostgreSQLURL: CustomStringConvertible {
  /// The hosts, the database and the namespace.
  var description: String { "postgresql://\(authorityAndPath.escaped)?namespace=\(namespace.escaped)" }
}

extension String {
  /// An argument of a command, with `***` in place of the passwords of a connection to PostgreSQL, which libpq accepts
  /// as a URL or as a list of settings. A URL that cannot be parsed is replaced as a whole.
  var hidingPasswords: String {
    guard
      let scheme = range(of: #"postgres(ql)?:(?=//)"#, options: [.regularExpression, .caseInsensitive])
    else { return hidingPasswordSettings }
    let url = try? PostgreSQLURL(String(self[scheme.upperBound...]))
    return String(self[..<scheme.lowerBound]).hidingPasswordSettings
      + (url?.connectionWithoutPasswords ?? "postgresql:***")
  }

  /// A message without passwords: arguments of this process that are PostgreSQL URLs are replaced by the description of
  /// the place. For messages of the argument parser, which may contain an argument.
  var withoutPasswords: String { withoutPasswords(of: CommandLine.arguments) }

  /// Like ``withoutPasswords``, for a list of arguments.
  func withoutPasswords(of arguments: [String]) -> String {
    // A description that the message already contains is not changed, even if it begins with an argument.
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

  /// The part of this argument that may contain a password, as a message would contain it, and the text to show
  /// instead. Nil if there is no such part.
  private var textWithPassword: (written: String, shown: String)? {
    guard
      let start = range(of: #"postgres(ql)?:"#, options: [.regularExpression, .caseInsensitive])
    else {
      // Passwords are hidden before the text is escaped: in escaped text they are not recognized.
      let hidden = hidingPasswordSettings
      return hidden == self ? nil : (written: escaped, shown: hidden.escaped)
    }
    let rest = self[start.upperBound...]
    let shown = (try? PostgreSQLURL(String(rest)).description) ?? "postgresql:"
    return (written: String(self[start.lowerBound...]), shown: shown)
  }

  /// The text with `***` in place of each value of a setting `password=`, which may have blanks around the equals sign.
  /// The value is quoted, or ends at the next blank that has no backslash before it.
  private var hidingPasswordSettings: String {
    let setting =
      /(?is)(password[ \t\n\u{B}\f\r]*=[ \t\n\u{B}\f\r]*)(?:'(?:[^'\\]|\\.)*'?|(?:\\.|[^ \t\n\u{B}\f\r])*)/
      .matchingSemantics(.unicodeScalar)
    return replacing(setting) { "\($0.1)***" }
  }
}
