import ArgumentParser
import Foundation

/// A place in a PostgreSQL database: a connection URL as libpq takes it, in which `namespace` may be one more parameter.
struct PostgreSQLURL: Sendable {
  static let defaultNamespace = "stockroom"

  /// What libpq gets. It may contain a password.
  let connection: String
  let namespace: String
  private let authorityAndPath: String

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
    guard !authorityAndPath.contains("@") else {
      throw ValidationError(
        "In the user and the password of a PostgreSQL place, write @ as %40 and / as %2F. Better, keep the password in "
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
    let query = parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&")
    connection = "postgresql://\(credentials)\(authorityAndPath)\(query)"
  }
}

extension PostgreSQLURL: CustomStringConvertible {
  /// The hosts, the database and the namespace.
  var description: String { "postgresql://\(authorityAndPath.escaped)?namespace=\(namespace.escaped)" }
}

extension String {
  /// The text, in which the arguments of this process that are URLs of PostgreSQL are without their passwords. For messages of the
  /// parser of arguments, which repeat an argument.
  var withoutPasswords: String {
    CommandLine.arguments.reduce(self) { text, argument in
      guard
        let start = argument.range(of: #"postgres(ql)?:"#, options: [.regularExpression, .caseInsensitive])
      else { return text }
      let url = argument[start.lowerBound...]
      let rest = url[start.upperBound...]
      let shown = (try? PostgreSQLURL(String(rest)).description) ?? "postgresql:"
      return text.replacing(url, with: shown)
    }
  }
}
