import StockroomCPostgreSQL
import StockroomCore

/// A connection, used by one thread at a time.
///
/// The only type that owns a handle of libpq. libpq never blocks here: it is used in its nonblocking mode,
/// and ``PostgreSQLSocket`` waits. Everything is sent as a pipeline
/// (https://www.postgresql.org/docs/15/libpq-pipeline-mode.html), one transaction each.
final class PostgreSQLConnection: @unchecked Sendable {
  // Safe to pass from thread to thread: libpq allows that, as long as one thread uses the connection at a
  // time, which its owner ensures.

  /// A statement with its parameters.
  struct Step {
    let statement: PostgreSQLStatement
    let parameters: [PostgreSQLParameter]

    init(_ statement: PostgreSQLStatement, _ parameters: PostgreSQLParameter...) {
      (self.statement, self.parameters) = (statement, parameters)
    }
  }

  /// Used only in the files of this type.
  let handle: OpaquePointer
  private let statements: PostgreSQLStatements
  private let settings: PostgreSQLSettings
  private var prepared: Set<PostgreSQLStatement> = []
  /// When the server was started, which distinguishes it from others behind the same name or address.
  private(set) var server: Int64?
  /// The generation of the connector when this connection was made: see ``PostgreSQLConnector/isOutdated(_:)``.
  var generation = 0
  /// The notices that have arrived since the last statement was sent.
  let notices: PostgreSQLNotices
  /// Called from time to time while a call waits for the server. An error that it throws ends the wait, and
  /// the connection.
  var meanwhile: () throws -> Void { didSet { nextCheck = .now + PostgreSQLSocket.slice } }
  /// When `meanwhile` is called next, even if the server never makes the call wait.
  private var nextCheck = ContinuousClock.now + PostgreSQLSocket.slice
  /// Whether the connection can no longer be used.
  private(set) var isLost = false
  /// The total time for which it has waited for the server.
  private(set) var timeWaited = Duration.zero
  /// The time by which the next statements must have a first answer, even if the deadline is later: an idle connection
  /// may have been lost without notice.
  var firstAnswerDeadline: ContinuousClock.Instant?

  /// Takes over an open connection.
  init(
    _ handle: OpaquePointer, _ statements: PostgreSQLStatements, _ settings: PostgreSQLSettings,
    until deadline: ContinuousClock.Instant, meanwhile: @escaping () throws -> Void
  ) throws {
    self.handle = handle
    self.meanwhile = meanwhile
    self.statements = statements
    self.settings = settings
    notices = PostgreSQLNotices(on: handle)
    guard PQsetnonblocking(handle, 1) == 0, PQenterPipelineMode(handle) == 1 else { throw lost() }
    try setUp(until: deadline)
  }

  /// Applies the settings, which persist if the session is kept. Throws ``PostgreSQLFailure/standby`` if the engine
  /// writes and the server does not accept writes.
  private func setUp(until deadline: ContinuousClock.Instant) throws {
    var sent = Sent()
    // With an isolation level: the default may be `serializable`, at which a standby runs no statement.
    for step in [Step(.beginReading), settings.step, Step(.commit)] {
      try send(step)
      sent.parts.append(.step(step.statement))
    }
    guard PQpipelineSync(handle) == 1 else { throw lost() }
    try flush(until: deadline)
    let results = try receive(sent, until: deadline)
    let answer = results[1]
    server = try answer.number(0, 3)
    // An engine that writes nothing can use a standby, and a role that may only read.
    guard settings.access == .readWrite else { return }
    if answer.isTrue(0, 1) || answer.isTrue(0, 2) { throw PostgreSQLFailure.standby }
  }

  deinit { PQfinish(handle) }

  // MARK: Statements

  /// Runs the steps as one transaction, and returns the result of each.
  ///
  /// - Throws: ``PostgreSQLFailure``. If the connection is lost, the sent steps may have taken effect.
  func run(_ steps: [Step], until deadline: ContinuousClock.Instant) throws -> [PostgreSQLResult] {
    let sent = try send(steps, until: deadline)
    return try receive(sent, until: deadline)
  }

  /// The steps that have been sent, in order.
  struct Sent {
    /// The part to which each result belongs.
    fileprivate enum Part {
      case preparation(PostgreSQLStatement)
      case setting
      case step(PostgreSQLStatement)
    }
    fileprivate var parts: [Part] = []
  }

  /// Sends the steps. Their results must be received.
  func send(_ steps: [Step], until deadline: ContinuousClock.Instant) throws -> Sent {
    notices.clear()
    var sent = Sent()
    var new: Set<PostgreSQLStatement> = []
    var unsent = 0
    for (index, step) in steps.enumerated() {
      if isPrepared(step.statement), !prepared.contains(step.statement), new.insert(step.statement).inserted {
        let result = PQsendPrepare(handle, step.statement.name, statements[step.statement], 0, nil)
        guard result == 1 else { throw lost() }
        sent.parts.append(.preparation(step.statement))
      }
      // A transaction with an isolation level must be begun first.
      let beginsTransaction = step.statement == .beginReading || step.statement == .beginWriting
      if index == 0, !settings.isSessionKept, !beginsTransaction {
        // The default of the pooler's session may be `serializable`, at which a standby runs no statement.
        if settings.access == .readOnly { try sendSetting(Step(.setReadingIsolation), &sent) }
        try sendSetting(settings.step, &sent)
      }
      try send(step)
      sent.parts.append(.step(step.statement))
      // The server answers the first step before it executes those that take long.
      if index == 0, steps.count > 1, firstAnswerDeadline != nil, PQsendFlushRequest(handle) == 0 {
        throw lost()
      }
      if index == 0, !settings.isSessionKept, beginsTransaction { try sendSetting(settings.step, &sent) }
      unsent += step.parameters.reduce(0) { $0 + $1.bytes.count }
      // libpq holds at most 2 GiB, and need not hold large values.
      if unsent >= Self.largestBuffer {
        try flush(until: deadline)
        unsent = 0
      }
    }
    guard PQpipelineSync(handle) == 1 else { throw lost() }
    try flush(until: deadline)
    return sent
  }

  /// The maximum number of bytes of parameters that libpq holds before they are sent.
  private static let largestBuffer = 16 << 20

  private func sendSetting(_ step: Step, _ sent: inout Sent) throws {
    try send(step)
    sent.parts.append(.setting)
  }

  private func isPrepared(_ statement: PostgreSQLStatement) -> Bool {
    statement.isPrepared && settings.preparesStatements
  }

  private func send(_ step: Step) throws {
    let lengths = step.parameters.map { Int32(clamping: $0.bytes.count) }
    let formats = [Int32](repeating: 1, count: step.parameters.count)
    let isPrepared = isPrepared(step.statement)
    let result = withPointers(to: step.parameters[...]) { values in
      isPrepared
        ? PQsendQueryPrepared(
          handle, step.statement.name, Int32(values.count), values, lengths, formats, 1)
        : PQsendQueryParams(
          handle, statements[step.statement], Int32(values.count), nil, values, lengths, formats, 1)
    }
    guard result == 1 else { throw lost() }
  }

  /// Sends the data that libpq holds. Receives data in the meantime, without which neither side would make
  /// progress.
  private func flush(until deadline: ContinuousClock.Instant) throws {
    while true {
      switch PQflush(handle) {
      case 0: return
      case 1:
        let ready = try wait(writing: true, until: deadline)
        if ready.reading, PQconsumeInput(handle) == 0 { throw lost() }
      default: throw lost()
      }
    }
  }

  /// The results of the steps, one for each.
  func receive(_ sent: Sent, until deadline: ContinuousClock.Instant) throws -> [PostgreSQLResult] {
    var results: [PostgreSQLResult] = []
    var failure: PostgreSQLFailure?
    for part in sent.parts {
      // Each part has one result, followed by none.
      while let result = try next(until: deadline) {
        switch result.status {
        case PGRES_COMMAND_OK, PGRES_TUPLES_OK:
          switch part {
          case .preparation(let statement): prepared.insert(statement)
          case .setting: if isStandby(result) { failure = failure ?? PostgreSQLFailure.standby }
          case .step: results.append(result)
          }
        case PGRES_PIPELINE_ABORTED: break
        default: failure = failure ?? self.failure(result, of: part)
        }
      }
    }
    if let failure, failure.isConnectionLost {
      isLost = true
      throw failure
    }
    var end = try next(until: deadline)
    // An error of the commit comes before the end of the pipeline, with no result after it.
    while let result = end, result.status == PGRES_FATAL_ERROR {
      failure = failure ?? result.failure
      end = try next(until: deadline) ?? next(until: deadline)
    }
    guard end?.status == PGRES_PIPELINE_SYNC else { throw lost() }
    if let failure {
      if failure.isConnectionLost { isLost = true }
      throw failure
    }
    let steps = sent.parts.count { if case .step = $0 { true } else { false } }
    guard results.count == steps else { throw lost() }
    return results
  }

  /// Whether a pooler has assigned the transaction to a server that is no longer the primary. A transaction that has
  /// begun there cannot write.
  private func isStandby(_ settingsResult: PostgreSQLResult) -> Bool {
    settings.access == .readWrite && settingsResult.isTrue(0, 1)
  }

  private func failure(_ result: PostgreSQLResult, of part: Sent.Part) -> PostgreSQLFailure {
    let failure = result.failure
    // `feature_not_supported`: a standby does not begin a transaction that may write, and runs nothing at the
    // isolation level `serializable`, which may be the default of a pooler's sessions.
    guard failure.sqlState == "0A000" else { return failure }
    return switch part {
    case .step(.beginWriting): .standby
    case .setting where settings.access == .readWrite: .standby
    default: failure
    }
  }

  /// The next result; nil after the last one of a statement.
  private func next(until deadline: ContinuousClock.Instant) throws -> PostgreSQLResult? {
    while PQisBusy(handle) == 1 {
      let ready = try wait(until: deadline)
      if ready.reading, PQconsumeInput(handle) == 0 { throw lost() }
    }
    guard let result = PQgetResult(handle) else {
      if PQstatus(handle) == CONNECTION_BAD { throw lost() }
      return nil
    }
    let wrapped = PostgreSQLResult(result)
    // libpq would return the same result forever. No statement of the engine is a COPY.
    if [PGRES_COPY_IN, PGRES_COPY_OUT, PGRES_COPY_BOTH].contains(wrapped.status) { throw lost() }
    if PQstatus(handle) == CONNECTION_BAD {
      isLost = true
      var failure = wrapped.failure
      failure.isConnectionLost = true
      throw failure
    }
    return wrapped
  }

  private func wait(writing: Bool = false, until deadline: ContinuousClock.Instant) throws -> (
    reading: Bool, writing: Bool
  ) {
    let ready: (reading: Bool, writing: Bool)
    let now = ContinuousClock.now
    let limit = min(deadline, firstAnswerDeadline ?? deadline)
    // libpq may have received only a part of a large encrypted record, and the socket does not signal the rest.
    let end = PQsslInUse(handle) == 1 ? min(limit, now + PostgreSQLSocket.slice) : limit
    defer { timeWaited += ContinuousClock.now - now }
    do {
      if now >= nextCheck {
        nextCheck = now + PostgreSQLSocket.slice
        try meanwhile()
      }
      ready = try PostgreSQLSocket.wait(
        for: PQsocket(handle), writing: writing, until: end, meanwhile: meanwhile)
    } catch {
      // The answer may still arrive, but no caller waits for it, so the connection cannot be used any more.
      isLost = true
      throw error
    }
    if ready == (false, false), end < limit { return (true, false) }
    if ready == (false, false) {
      isLost = true
      throw PostgreSQLFailure(
        sqlState: nil, text: "the server has not answered in time", isConnectionLost: true)
    }
    if ready.reading { firstAnswerDeadline = nil }
    return ready
  }

  /// Whether the server has ended the connection while it was idle. Does not wait.
  var hasEnded: Bool {
    // The first call may receive the server's last message, the second one finds the end after it.
    for _ in 0..<2 where !isLost {
      guard PostgreSQLSocket.isReadable(PQsocket(handle)) else { return false }
      if PQconsumeInput(handle) == 0 { isLost = true }
    }
    return isLost
  }

  /// Stops using the connection: it is in the middle of an operation.
  func discard() { isLost = true }

  /// Stops using the connection, and returns why.
  func lost() -> PostgreSQLFailure {
    isLost = true
    return PostgreSQLFailure(sqlState: nil, text: Self.message(of: handle), isConnectionLost: true)
  }

  /// libpq's own text for the last error, in one line.
  static func message(of handle: OpaquePointer) -> String {
    let text = PQerrorMessage(handle).map { String(cString: $0) } ?? ""
    let line = text.inOneLine
    return line.isEmpty ? "the connection has been lost" : line
  }
}
