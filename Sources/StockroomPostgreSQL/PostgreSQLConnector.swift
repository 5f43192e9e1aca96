import StockroomCPostgreSQL
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Opens connections to the server that accepts writes. For an engine that only reads, any server suffices.
final class PostgreSQLConnector: Sendable {
  let address: PostgreSQLAddress
  let place: PostgreSQLNamespace
  let settings: PostgreSQLSettings
  private let statements: PostgreSQLStatements
  /// Divides the connections between writing and reading if the server grants too few.
  let share = PostgreSQLConnectionShare()

  private struct Current {
    /// The index of the host that was last used.
    var host = 0
    /// The server behind it; nil before the first connection.
    var server: Int64?
    /// For an engine that writes: the number of times that another server has become the one to use.
    var generation = 0
  }

  private let current = MutexProtected(Current())
  private let moveHandler = MutexProtected<@Sendable () -> Void>({})

  init(_ address: PostgreSQLAddress, _ place: PostgreSQLNamespace, _ settings: PostgreSQLSettings) {
    (self.address, self.place, self.settings) = (address, place, settings)
    statements = PostgreSQLStatements(place)
  }

  /// Waits before the next attempt: 20 ms at first, and up to 320 ms later.
  static func pause(
    _ attempt: Int, until deadline: ContinuousClock.Instant, _ meanwhile: () throws -> Void
  ) throws {
    let end = min(deadline, .now + .milliseconds(20 * (1 << min(attempt, 4))))
    while ContinuousClock.now < end {
      usleep(5_000)
      try meanwhile()
    }
  }

  /// A connection to the primary, or to any server for an engine that only reads. Call it on a thread that
  /// may block.
  ///
  /// - Parameters:
  ///   - isPatient: Whether an unavailable server is retried until the deadline. A server that has too many connections
  ///     always is.
  ///   - meanwhile: Called from time to time. An error that it throws ends the attempt.
  /// - Throws: `StorageError` with code `unavailable`; `permissionDenied`; `readOnly` if all servers answer,
  ///   none accepts writes and `isPatient` is false; and others.
  func connect(
    until deadline: ContinuousClock.Instant, isPatient: Bool = true,
    meanwhile: @escaping () throws -> Void = {}
  ) throws -> PostgreSQLConnection {
    var failures = 0
    return try connect(until: deadline, isPatient: isPatient, after: &failures, meanwhile: meanwhile)
  }

  /// - Parameters:
  ///   - side: The side that the connection is for. It does not take a connection that has been released for the other
  ///     side.
  ///   - failures: The number of consecutive connections that could not be made or used. The pause before an attempt
  ///     grows with it.
  ///   - requestsRelease: Called when the server has too many connections. Returns whether to request one from the
  ///     other side.
  func connect(
    until deadline: ContinuousClock.Instant, isPatient: Bool = true,
    for side: PostgreSQLConnectionShare.Side? = nil, after failures: inout Int,
    requestsRelease: () -> Bool = { true }, meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    var last: StorageError?
    while true {
      if failures > 0 { try Self.pause(failures - 1, until: deadline, meanwhile) }
      if let side { try share.wait(for: side, until: deadline, meanwhile) }
      do {
        let connection = try attemptAll(until: deadline, isPatient: isPatient, meanwhile)
        if let side { share.end(for: side) }
        return connection
      } catch let error as StorageError {
        failures += 1
        // If the deadline has cut the last attempt short, the error of the attempt before it says more.
        guard ContinuousClock.now < deadline else {
          if let side { share.end(for: side) }
          throw last ?? error
        }
        let failure = error.underlying as? PostgreSQLFailure
        let (isFull, isTemporary) = (failure?.isFull ?? false, failure?.isTemporary ?? false)
        guard isFull || isPatient && isTemporary else { throw error }
        if isFull, let side, requestsRelease() { share.request(for: side) }
        last = error
      }
    }
  }

  /// - Parameter handler: Called when another server has become the right one, or the same one has been restarted.
  func onMove(_ handler: @escaping @Sendable () -> Void) { moveHandler.withLock { $0 = handler } }

  /// Whether another server has become the one to use since the connection was made. The connection may then show an
  /// older state: a former primary may still answer.
  func isOutdated(_ connection: PostgreSQLConnection) -> Bool {
    connection.generation != current.withLock { $0.generation }
  }

  /// - Parameter generation: The generation at the beginning of the attempt to connect.
  private func adopt(_ connection: PostgreSQLConnection, to index: Int, since generation: Int) throws {
    let isMoved = current.withLock { current -> Bool? in
      guard current.generation == generation || current.server == connection.server else { return nil }
      let isMoved = current.server.map { $0 != connection.server } == true && settings.access == .readWrite
      (current.host, current.server) = (index, connection.server)
      if isMoved { current.generation += 1 }
      connection.generation = current.generation
      return isMoved
    }
    guard let isMoved else {
      throw PostgreSQLFailure(
        sqlState: nil, text: "another server has become the primary meanwhile", isConnectionLost: true)
    }
    let handler = moveHandler.withLock { $0 }
    if isMoved { handler() }
  }

  /// Tries the hosts one after another, beginning with the one that was last used. Each has its share of the time.
  private func attemptAll(
    until deadline: ContinuousClock.Instant, isPatient: Bool, _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    let (first, generation) = current.withLock { ($0.host, $0.generation) }
    let hosts = try hosts()
    let count = hosts.count
    var worst: PostgreSQLFailure?
    // The most useful of the errors that may disappear by waiting.
    var temporary: PostgreSQLFailure?
    var isAnyAway = false
    for offset in 0..<count {
      let index = (first + offset) % count
      let left = deadline - ContinuousClock.now
      // If a server has too many connections, it is tried again soon, after the other side has been asked for one. So
      // each of the remaining hosts gets at most a second.
      let isFull = worst?.isFull ?? false
      let isRest = offset == count - 1 && !isFull
      let share = isRest ? left : max(isFull ? .zero : left / (count - offset), min(left, .seconds(1)))
      let end = ContinuousClock.now + share
      do {
        let connection = try attempt(hosts[index], until: end, meanwhile)
        if isPatient, count > 1 || isOther(connection) { try requirePlace(on: connection, until: end) }
        try adopt(connection, to: index, since: generation)
        return connection
      } catch let failure as PostgreSQLFailure {
        worst = failure.isMoreTelling(than: worst) ? failure : worst
        guard failure.isTemporary else { continue }
        temporary = failure.isMoreTelling(than: temporary) ? failure : temporary
        isAnyAway = isAnyAway || !failure.isStandby
      }
    }
    let failure = worst ?? PostgreSQLFailure(sqlState: nil, text: "there is no host")
    let message = "Connecting to \(address) failed"
    // The primary may be another host, which is unavailable or still a standby.
    if isPatient, let temporary, !failure.isTemporary {
      throw StorageError(
        .unavailable, "\(message), and one of its hosts refuses: \(failure)", underlying: temporary)
    }
    // If the engine is open already, the place could be written to before, so a standby is about to become the primary.
    // Otherwise the primary may be the host that is unavailable.
    if isPatient || isAnyAway, failure.isStandby {
      throw StorageError(.unavailable, message, underlying: failure)
    }
    throw StorageError.postgreSQL(failure, message)
  }

  /// Whether the server is not the one that was last used: a name or an address may stand for several.
  private func isOther(_ connection: PostgreSQLConnection) -> Bool {
    current.withLock { $0.server.map { $0 != connection.server } } ?? false
  }

  /// Throws unless the database has the tables of the namespace: another server may have a database of the same name,
  /// which must not be mistaken for the one that is unavailable.
  private func requirePlace(
    on connection: PostgreSQLConnection, until deadline: ContinuousClock.Instant
  ) throws {
    let result = try connection.run([.init(.recognise, .text(place.name))], until: deadline).first
    guard let result, result.rowCount == 1, result.text(0, 2) == nil else { return }
    // `undefined_table`
    throw PostgreSQLFailure(sqlState: "42P01", text: "the database does not have the schema \(place.schema)")
  }

  /// The hosts to try: those of the connection string or, if it specifies at most a port, those of its
  /// service or of the environment. Reads files.
  ///
  /// - Throws: `StorageError` with code `unsupported` if they cannot be hosts: one may be a connection string
  ///   with a password, which errors would show.
  private func hosts() throws -> [PostgreSQLAddress.Host] {
    guard !address.namesHosts, address.hosts.count == 1, let host = address.hosts.first else {
      return address.hosts
    }
    var parameters = address.parameters(for: host, at: nil)
    // libpq refuses this value after it has determined everything else, and does not connect.
    parameters.append((keyword: "target_session_attrs", value: "none"))
    guard let handle = Self.start(parameters) else { return address.hosts }
    defer { PQfinish(handle) }
    guard let options = PQconninfo(handle) else { return address.hosts }
    defer { PQconninfoFree(options) }
    let hosts = PostgreSQLAddress.hosts(of: options) ?? address.hosts
    guard hosts.allSatisfy(\.isPlausible) else { throw PostgreSQLAddress.malformed }
    return hosts
  }

  private func attempt(
    _ host: PostgreSQLAddress.Host, until deadline: ContinuousClock.Instant,
    _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    let addresses = try HostResolver.addresses(of: host, until: deadline, meanwhile: meanwhile)
    return try attempt(host, at: addresses, until: deadline, meanwhile)
  }

  /// Tries the addresses of the host one after another. Each has its share of the time.
  func attempt(
    _ host: PostgreSQLAddress.Host, at addresses: [String?], until deadline: ContinuousClock.Instant,
    _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    var worst: PostgreSQLFailure?
    for (number, address) in addresses.enumerated() {
      let left = deadline - ContinuousClock.now
      do {
        return try open(host, at: address, until: .now + left / (addresses.count - number), meanwhile)
      } catch let failure as PostgreSQLFailure {
        worst = failure.isMoreTelling(than: worst) ? failure : worst
      }
    }
    throw worst
      ?? PostgreSQLFailure(sqlState: nil, text: "the host has no address", isConnectionLost: true)
  }

  private func open(
    _ host: PostgreSQLAddress.Host, at resolved: String?, until deadline: ContinuousClock.Instant,
    _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    let parameters = address.parameters(for: host, at: resolved)
    guard let handle = Self.start(parameters) else {
      throw PostgreSQLFailure(sqlState: nil, text: "there is not enough memory for a connection")
    }
    var isHandedOver = false
    defer { if !isHandedOver { PQfinish(handle) } }
    // The name of the database may be from a service or the environment, which have not been checked before.
    if let name = PQdb(handle), PostgreSQLAddress.isConnection(String(cString: name)) {
      throw PostgreSQLAddress.malformed
    }
    // So that errors begin with their code, which is the only part that does not depend on the server's
    // language.
    PQsetErrorVerbosity(handle, PQERRORS_VERBOSE)
    PQsetNoticeReceiver(handle, { _, _ in }, nil)
    var status = PGRES_POLLING_WRITING
    while PQstatus(handle) != CONNECTION_BAD, status != PGRES_POLLING_OK {
      if status == PGRES_POLLING_FAILED { break }
      let ready = try PostgreSQLSocket.wait(
        for: PQsocket(handle), reading: status == PGRES_POLLING_READING,
        writing: status == PGRES_POLLING_WRITING, until: deadline, meanwhile: meanwhile)
      if ready == (false, false) {
        throw PostgreSQLFailure(
          sqlState: nil, text: "the server has not answered in time", isConnectionLost: true)
      }
      status = PQconnectPoll(handle)
    }
    guard PQstatus(handle) == CONNECTION_OK else { throw Self.failure(of: handle) }
    PQsetErrorVerbosity(handle, PQERRORS_DEFAULT)
    isHandedOver = true
    return try PostgreSQLConnection(handle, statements, settings, until: deadline, meanwhile: meanwhile)
  }

  private static func start(_ parameters: [(keyword: String, value: String)]) -> OpaquePointer? {
    let keywords = parameters.map { strdup($0.keyword) }
    let values = parameters.map { strdup($0.value) }
    defer { for string in keywords + values { free(string) } }
    return PQconnectStartParams(
      keywords.map { UnsafePointer($0) } + [nil], values.map { UnsafePointer($0) } + [nil], 0)
  }

  /// The reason why a connection could not be made. Only the server's own errors have codes, at their
  /// beginning.
  private static func failure(of handle: OpaquePointer) -> PostgreSQLFailure {
    let text = PostgreSQLConnection.message(of: handle)
    if let match = text.firstMatch(of: /: +((?=[A-Z]*[0-9])[0-9A-Z]{5}): +(.+?)(?: LOCATION:.*)?$/) {
      return refusal(String(match.1), saying: String(match.2))
    }
    return failure(saying: text, needsPassword: PQconnectionNeedsPassword(handle) == 1)
  }

  /// The error with which the server has refused a connection.
  private static func refusal(_ sqlState: String, saying text: String) -> PostgreSQLFailure {
    // PgBouncer has one code for all refusals, `protocol_violation`, and its texts are always English.
    let meanings = [
      ("authentication failed", "28P01"), ("no such user", "28P01"), ("no such database", "3D000"),
    ]
    let meaning = sqlState == "08P01" ? meanings.first { text.contains($0.0) }?.1 : nil
    return PostgreSQLFailure(sqlState: meaning ?? sqlState, text: text)
  }

  /// An error that libpq itself has detected.
  static func failure(saying text: String, needsPassword: Bool) -> PostgreSQLFailure {
    // Hosts, users and files may have any names.
    let words = text.replacing(/"[^"]*"/, with: "")
    // Errors that libpq finds in certificates and keys, and in negotiating encryption.
    let isRefused =
      needsPassword
      || ["certificate", "SSL", "SCRAM", "channel binding", "private key"].contains { words.contains($0) }
    // A connection that ends during the encryption handshake is not a refusal.
    let isBroken = [
      "closed the connection", "Connection reset", "SYSCALL", "timeout expired",
      "connection has been closed unexpectedly", "unexpected eof while reading",
      "could not send SSL negotiation packet",
    ].contains { words.contains($0) }
    if isRefused, !isBroken { return PostgreSQLFailure(sqlState: "28000", text: text) }
    return PostgreSQLFailure(sqlState: nil, text: text, isConnectionLost: true)
  }
}
