import StockroomCPostgreSQL
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The address of a database and the credentials: a parsed connection string.
struct PostgreSQLAddress: Sendable {
  /// One of the servers that may have the database.
  struct Host: Sendable, Hashable {
    /// A name, an address or the directory of a socket; nil for libpq's own choice.
    var name: String?
    /// An address that needs no resolving.
    var address: String?
    var port: String?

    /// Whether it can be a host at all. Otherwise libpq has parsed other parts of the string as a host, which
    /// may contain a password.
    var isPlausible: Bool {
      if let port, UInt16(port).map({ $0 == 0 }) ?? true { return false }
      return [name, address].compactMap { $0 }.allSatisfy { name in
        name.hasPrefix("/") || name.hasPrefix("@")
          || !name.contains { $0.isWhitespace || "=;?#@/".contains($0) }
      }
    }
  }

  /// Every specified keyword except those that name hosts.
  private let parameters: [(keyword: String, value: String)]
  /// At least one, in the order given.
  let hosts: [Host]

  /// - Parameter connection: A connection string or URL in libpq's syntax:
  ///   https://www.postgresql.org/docs/15/libpq-connect.html#LIBPQ-CONNSTRING
  /// - Throws: `StorageError` with code `unsupported` that does not contain the string, which may include a
  ///   password; also for a URL in which the end of a password is ambiguous.
  init(_ connection: String) throws {
    guard !connection.utf8.contains(0), !Self.isAmbiguous(connection) else { throw Self.malformed }
    guard let options = PQconninfoParse(connection, nil) else { throw Self.malformed }
    defer { PQconninfoFree(options) }
    var given: [String: String] = [:]
    var parameters: [(keyword: String, value: String)] = []
    for (keyword, value) in Self.values(of: options) {
      switch keyword {
      case "host", "hostaddr", "port": given[keyword] = value
      // Options that the engine determines: it needs the primary, and uses UTF-8.
      case "target_session_attrs", "connect_timeout", "client_encoding": break
      case "dbname" where Self.isConnection(value): throw Self.malformed
      default: parameters.append((keyword, value))
      }
    }
    guard let hosts = Self.hosts(given), hosts.allSatisfy(\.isPlausible) else { throw Self.malformed }
    self.parameters = parameters
    self.hosts = hosts
  }

  /// The options that have a value.
  private static func values(
    of options: UnsafeMutablePointer<PQconninfoOption>
  ) -> [(keyword: String, value: String)] {
    var values: [(keyword: String, value: String)] = []
    var option = options
    while let keyword = option.pointee.keyword {
      if let value = option.pointee.val { values.append((String(cString: keyword), String(cString: value))) }
      option += 1
    }
    return values
  }

  /// Whether the name of a database is itself a connection string, which may contain a password that errors
  /// would show.
  static func isConnection(_ name: String) -> Bool {
    name.contains("://") || name.contains(/(?i)password\s*=/)
  }

  /// Whether libpq could parse a part of a password in a URL as a host or a database: if it contains an @ or
  /// / that is not written %40 or %2F.
  private static func isAmbiguous(_ connection: String) -> Bool {
    guard let scheme = ["postgresql://", "postgres://"].first(where: connection.hasPrefix) else {
      return false
    }
    let rest = connection.dropFirst(scheme.count)
    // The first @ ends a password, which may contain a question mark, unless there is a / before it.
    let first = rest.firstIndex { $0 == "@" || $0 == "/" } ?? rest.startIndex
    let start = rest[first...].first == "@" ? first : rest.startIndex
    let place = rest[..<(rest[start...].firstIndex(of: "?") ?? rest.endIndex)]
    let signs = place.indices.filter { place[$0] == "@" }
    guard let last = signs.last else { return false }
    return signs.count > 1 || place[..<last].contains("/")
  }

  /// Whether the connection string specifies the servers.
  var namesHosts: Bool { hosts.contains { $0.name != nil || $0.address != nil } }

  /// The hosts of the options, at least one; nil if there are not as many names as addresses or ports.
  static func hosts(of options: UnsafeMutablePointer<PQconninfoOption>) -> [Host]? {
    Self.hosts(Dictionary(values(of: options).map { ($0.keyword, $0.value) }, uniquingKeysWith: { $1 }))
  }

  private static func hosts(_ given: [String: String]) -> [Host]? {
    func list(_ keyword: String) -> [String] {
      given[keyword].map { $0.split(separator: ",", omittingEmptySubsequences: false).map(String.init) } ?? []
    }
    let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"))
    let count = max(names.count, addresses.count, 1)
    guard [0, count].contains(names.count), [0, count].contains(addresses.count),
      [0, 1, count].contains(ports.count)
    else { return nil }
    func element(_ index: Int, of list: [String]) -> String? {
      let value = list.count == 1 ? list[0] : index < list.count ? list[index] : ""
      return value.isEmpty ? nil : value
    }
    return (0..<count).map {
      Host(name: element($0, of: names), address: element($0, of: addresses), port: element($0, of: ports))
    }
  }

  static let malformed = StorageError(
    .unsupported,
    "The connection string is malformed, or what a service or the environment adds to it. In a URL, @ and / in a password or name are written %40 and %2F. It is not shown, since it may contain a password."
  )

  /// The parameters for libpq to connect to one host.
  ///
  /// - Parameter address: The address of the host, if it has been resolved.
  func parameters(for host: Host, at address: String?) -> [(keyword: String, value: String)] {
    var parameters = parameters
    for (keyword, value) in [
      ("host", host.name), ("hostaddr", address ?? host.address), ("port", host.port),
      // Regardless of the encoding in the environment: the name of a schema may contain any characters.
      ("client_encoding", "UTF8"),
      // Regardless of a service and of the environment: the engine determines itself which server it needs.
      ("target_session_attrs", "any"),
    ] {
      if let value { parameters.append((keyword, value)) }
    }
    // A connection without answers is detected as lost within a minute, unless the string specifies
    // otherwise.
    var defaults = [
      ("keepalives_idle", "20"), ("keepalives_interval", "5"), ("keepalives_count", "4"),
      ("tcp_user_timeout", "40000"), ("fallback_application_name", "Stockroom"),
    ]
    // Without this setting, libpq searches for Kerberos credentials, which waits for files and servers, and the
    // Kerberos library aborts a process that exits while a connection is being made.
    if ProcessInfo.processInfo.environment["PGGSSENCMODE"] == nil {
      defaults.append(("gssencmode", "disable"))
    }
    for (keyword, value) in defaults where !parameters.contains(where: { $0.keyword == keyword }) {
      parameters.append((keyword, value))
    }
    return parameters
  }
}

extension PostgreSQLAddress: CustomStringConvertible, CustomReflectable {
  /// The hosts, without the other parameters: one of them may be a password.
  var customMirror: Mirror { Mirror(self, children: ["hosts": hosts], displayStyle: .struct) }

  /// The database and its hosts, without user and password.
  var description: String {
    let database = parameters.first { $0.keyword == "dbname" }?.value
    let names = hosts.compactMap { host in
      (host.name ?? host.address).map { name in host.port.map { "\(name):\($0)" } ?? name }
    }
    let place = names.isEmpty ? "" : " on \(names.joined(separator: ", "))"
    return "the PostgreSQL database\(database.map { " \($0.debugDescription)" } ?? "")\(place)"
  }
}
