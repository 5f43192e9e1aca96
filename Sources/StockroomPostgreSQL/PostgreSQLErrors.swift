import StockroomCPostgreSQL
import StockroomCore

/// What the server or libpq said, as the cause of a `StorageError`.
struct PostgreSQLFailure: Error, CustomStringConvertible {
  /// The server's code for what happened, nil if libpq itself has found it:
  /// https://www.postgresql.org/docs/15/errcodes-appendix.html
  let sqlState: String?
  /// What happened, in the words of the server or of libpq.
  let text: String
  /// Whether the connection is of no more use, so that the outcome of what was sent on it is unknown.
  var isConnectionLost = false
  /// The function of the server that has found it, if the server says so.
  var function: String?

  var description: String { "PostgreSQL\(sqlState.map { " \($0)" } ?? ""), \(text)" }

  /// Nothing was wrong but that others did something at the same time: it may go well the next time.
  /// `serialization_failure`, `deadlock_detected`, `unique_violation`, and what ``PostgreSQLStatement/fencedWrite`` fails with.
  var isConcurrency: Bool { ["40001", "40P01", "23505", "2201F"].contains(sqlState) }

  /// Whether the server cannot be written to: `read_only_sql_transaction`.
  var isStandby: Bool { sqlState == "25006" }

  /// Not the server to write to. A connection to it is given up.
  static let standby = PostgreSQLFailure(
    sqlState: "25006", text: "the server is a standby, or read-only", isConnectionLost: true)

  /// What a user has to mend says more than that a server is away.
  func isMoreTelling(than other: PostgreSQLFailure?) -> Bool { other?.isTemporary ?? true }

  /// Nothing was wrong with what was written: subscribers are so far behind that the server has no room for another announcement.
  var isNotificationQueueFull: Bool {
    sqlState == "54000" && (function == "PreCommit_Notify" || text.contains("NOTIFY queue"))
  }

  /// The server will be back, or another one takes its place.
  var isTemporary: Bool {
    guard let sqlState else { return isConnectionLost }
    return Self.temporary.contains(sqlState) || sqlState.hasPrefix("08")
  }

  /// `admin_shutdown`, `crash_shutdown`, `cannot_connect_now`, `too_many_connections`, and a primary that has become a standby:
  /// `read_only_sql_transaction`.
  private static let temporary: Set<String> = ["57P01", "57P02", "57P03", "53300", "25006"]

  /// The end of the session, as the server announces it.
  static func endsSession(_ sqlState: String?) -> Bool {
    guard let sqlState else { return false }
    return sqlState.hasPrefix("57P") || sqlState.hasPrefix("08") || ["25P03", "25006"].contains(sqlState)
  }
}

extension StorageError {
  /// The error for what PostgreSQL said.
  static func postgreSQL(_ failure: PostgreSQLFailure, _ message: String) -> StorageError {
    StorageError(code(for: failure), message, underlying: failure)
  }

  private static func code(for failure: PostgreSQLFailure) -> Code {
    guard let state = failure.sqlState else { return failure.isConnectionLost ? .unavailable : .io }
    if failure.isNotificationQueueFull { return .unavailable }
    switch state {
    case "25006": return .readOnly
    case "42501": return .permissionDenied
    case "53100": return .diskFull
    // `lock_not_available`
    case "55P03": return .locked
    // `query_canceled`, by a timeout
    case "57014": return .unavailable
    default: break
    }
    switch state.prefix(2) {
    case "28": return .permissionDenied
    case "40": return .conflict
    case "54": return .valueTooLarge
    case "XX": return state == "XX000" ? .io : .corrupted
    // No such database.
    case "3D": return .unsupported
    case "08", "53", "57": return .unavailable
    default: return .io
    }
  }
}

extension String {
  /// The words, with a blank between two of them. What libpq and servers say may have several lines.
  var inOneLine: String { split(whereSeparator: \.isWhitespace).joined(separator: " ") }
}
