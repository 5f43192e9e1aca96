import StockroomCPostgreSQL
import StockroomCore

/// A connection, used by one thread at a time.
///
/// The only type that owns a handle of libpq. libpq never waits by itself here: it is used without blocking, and ``PostgreSQLSocket``
/// waits. Everything is sent as a pipeline (https://www.postgresql.org/docs/15/libpq-pipeline-mode.html), one transaction each.
final class PostgreSQLConnection: @unchecked Sendable {
  // Safe to hand from thread to thread: libpq allows that, as long as one of them uses the connection at a time, and its
  // owner sees to that.

  /// A statement with its parameters.
  struct Step {
    let statement: PostgreSQLStatement
    let parameters: [PostgreSQLParameter]

    init(_ statement: PostgreSQLStatement, _ parameters: PostgreSQLParameter...) {
      (self.statement, self.parameters) = (statement, parameters)
    }
  }

  private let handle: OpaquePointer
  private let statements: PostgreSQLStatements
  private let settings: PostgreSQLSettings
  private var prepared: Set<PostgreSQLStatement> = []
  /// What the notices said that came since the last statement was sent.
  private let notices: PostgreSQLNotices
  /// Called now and then while a call waits for the server. What it throws ends the wait, and the connection.
  var meanwhile: () throws -> Void { didSet { nextLook = .now + PostgreSQLSocket.slice } }
  /// When it is called next, even if the server never keeps the call waiting.
  private var nextLook = ContinuousClock.now + PostgreSQLSocket.slice
  /// Whether anything more can be done with the connection.
  private(set) var isLost = false
  /// How long it has waited for the server, ever.
  private(set) var timeWaited = Duration.zero
  /// When something has to have come for what is sent next, even if the deadline is later: a connection that was idle may have died
  /// without a word.
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

  /// Makes the settings, which last if the session is kept, and finds out whether the server is the right one.
  private func setUp(until deadline: ContinuousClock.Instant) throws {
    var sent = Sent()
    try sendSettings(&sent, as: .step(settings.statement))
    guard PQpipelineSync(handle) == 1 else { throw lost() }
    try flush(until: deadline)
    let answer = try receive(sent, until: deadline).first
    // Where nothing is written a standby will do, and a role that may only read.
    guard settings.access == .readWrite, let answer else { return }
    if answer.isTrue(0, 1) || answer.isTrue(0, 2) { throw PostgreSQLFailure.standby }
  }

  deinit { PQfinish(handle) }

  // MARK: Statements

  /// Runs the steps as one transaction, and returns what each of them has returned.
  ///
  /// - Throws: ``PostgreSQLFailure``. If the connection is lost, what was sent may have been done.
  func run(_ steps: [Step], until deadline: ContinuousClock.Instant) throws -> [PostgreSQLResult] {
    let sent = try send(steps, until: deadline)
    return try receive(sent, until: deadline)
  }

  /// What has been sent, in order.
  struct Sent {
    /// What each result belongs to.
    fileprivate enum Part {
      case preparation(PostgreSQLStatement)
      case setting
      case step(PostgreSQLStatement)
    }
    fileprivate var parts: [Part] = []
  }

  /// Sends the steps, of which the results have to be received.
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
      // A transaction that is begun with a level of isolation has to be begun first.
      let beginsTransaction = step.statement == .beginReading || step.statement == .beginWriting
      if index == 0, !settings.isSessionKept, !beginsTransaction { try sendSettings(&sent) }
      try send(step)
      sent.parts.append(.step(step.statement))
      // The server answers the first step before it works on those that take long.
      if index == 0, steps.count > 1, firstAnswerDeadline != nil, PQsendFlushRequest(handle) == 0 {
        throw lost()
      }
      if index == 0, !settings.isSessionKept, beginsTransaction { try sendSettings(&sent) }
      unsent += step.parameters.reduce(0) { $0 + $1.bytes.count }
      // libpq holds 2 GiB at most, and need not hold what is large.
      if unsent >= Self.largestBuffer {
        try flush(until: deadline)
        unsent = 0
      }
    }
    guard PQpipelineSync(handle) == 1 else { throw lost() }
    try flush(until: deadline)
    return sent
  }

  /// How many bytes of parameters libpq holds before they are sent.
  private static let largestBuffer = 16 << 20

  private func sendSettings(_ sent: inout Sent, as part: Sent.Part = .setting) throws {
    try send(settings.step)
    sent.parts.append(part)
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

  /// Sends what libpq holds. Takes in what comes meanwhile, without which neither side would get on.
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

  /// What the steps have returned.
  func receive(_ sent: Sent, until deadline: ContinuousClock.Instant) throws -> [PostgreSQLResult] {
    var results: [PostgreSQLResult] = []
    var failure: PostgreSQLFailure?
    for part in sent.parts {
      // Each part has one result and then none.
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
    // What goes wrong at the commit comes in front of the end of the pipeline, with none behind it.
    while let result = end, result.status == PGRES_FATAL_ERROR {
      failure = failure ?? result.failure
      end = try next(until: deadline) ?? next(until: deadline)
    }
    guard end?.status == PGRES_PIPELINE_SYNC else { throw lost() }
    if let failure {
      if failure.isConnectionLost { isLost = true }
      throw failure
    }
    return results
  }

  /// Whether the pooler has given the transaction to a server that was the primary before. Nothing can be written in a transaction that
  /// has begun there.
  private func isStandby(_ settingsResult: PostgreSQLResult) -> Bool {
    settings.access == .readWrite && settingsResult.isTrue(0, 1)
  }

  private func failure(_ result: PostgreSQLResult, of part: Sent.Part) -> PostgreSQLFailure {
    let failure = result.failure
    // `feature_not_supported`: a standby begins no transaction that may write.
    if case .step(.beginWriting) = part, failure.sqlState == "0A000" { return .standby }
    return failure
  }

  /// The next result; nil behind the last one of a statement.
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
    // libpq would return the same for ever: no statement of the engine's is a COPY.
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
    // Of a large encrypted record libpq takes a part, and no socket tells of the rest.
    let end = PQsslInUse(handle) == 1 ? min(limit, now + PostgreSQLSocket.slice) : limit
    defer { timeWaited += ContinuousClock.now - now }
    do {
      if now >= nextLook {
        nextLook = now + PostgreSQLSocket.slice
        try meanwhile()
      }
      ready = try PostgreSQLSocket.wait(
        for: PQsocket(handle), writing: writing, until: end, meanwhile: meanwhile)
    } catch {
      // Nobody wants the answer any more, which may still come.
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

  /// Whether the server has ended the connection while nothing was asked of it. Does not wait.
  var hasEnded: Bool {
    // The first call may take in the server's farewell, the second one finds the end behind it.
    for _ in 0..<2 where !isLost {
      guard PostgreSQLSocket.isReadable(PQsocket(handle)) else { return false }
      if PQconsumeInput(handle) == 0 { isLost = true }
    }
    return isLost
  }

  /// Does without the connection from now on: it is in the middle of something.
  func discard() { isLost = true }

  private func lost() -> PostgreSQLFailure {
    isLost = true
    return PostgreSQLFailure(sqlState: nil, text: Self.message(of: handle), isConnectionLost: true)
  }

  /// libpq's own words for what went wrong last, in one line.
  static func message(of handle: OpaquePointer) -> String {
    let text = PQerrorMessage(handle).map { String(cString: $0) } ?? ""
    let line = text.inOneLine
    return line.isEmpty ? "the connection has been lost" : line
  }

  // MARK: Notices and notifications

  /// Whether a commit has been made here, and the server has given up to wait until it is on another machine too.
  var hasGivenUpReplication: Bool { notices.functions.contains("SyncRepWaitForLSN") }

  /// The descriptor on which notifications arrive.
  var socket: Int32 { PQsocket(handle) }

  /// The payloads of the notifications that have arrived.
  func notifications() throws -> [String] {
    guard PQconsumeInput(handle) == 1 else { throw lost() }
    var payloads: [String] = []
    while let notification = PQnotifies(handle) {
      payloads.append(String(cString: notification.pointee.extra))
      PQfreemem(notification)
    }
    // libpq closes the socket while it looks for notifications if what has come is none of the protocol.
    if PQstatus(handle) == CONNECTION_BAD { throw lost() }
    return payloads
  }
}

/// Calls `body` with pointers to the bytes of each parameter.
private func withPointers<Result>(
  to parameters: ArraySlice<PostgreSQLParameter>, _ pointers: [UnsafePointer<CChar>?] = [],
  _ body: ([UnsafePointer<CChar>?]) -> Result
) -> Result {
  guard let first = parameters.first else { return body(pointers) }
  return first.bytes.withUnsafeBytes { bytes in
    // A nil pointer would stand for NULL.
    withUnsafePointer(to: CChar(0)) { empty in
      let pointer = bytes.baseAddress?.assumingMemoryBound(to: CChar.self) ?? empty
      return withPointers(to: parameters.dropFirst(), pointers + [pointer], body)
    }
  }
}
