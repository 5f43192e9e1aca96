import StockroomCPostgreSQL
import StockroomCore

/// An error of the server or of libpq, as the cause of a `StorageError`.
struct PostgreSQLFailure: Error, CustomStringConvertible {
  /// The server's error code, nil if libpq itself has detected the error:
  /// https://www.postgresql.org/docs/15/errcodes-appendix.html
  let sqlState: String?
  /// The text of the server or of libpq.
  let text: String
  /// Whether the connection can no longer be used, so that the outcome of the statements sent on it is
  /// unknown.
  var isConnectionLost = false
  /// The function of the server that reported the error, if the server states it.
  var function: String?

  var description: String { "PostgreSQL\(sqlState.map { " \($0)" } ?? ""), \(text)" }

  /// Whether the statement failed only because of concurrent changes by others, so that it may succeed the next time:
  /// `serialization_failure`, `deadlock_detected`, `unique_violation`, and the error of
  /// ``PostgreSQLStatement/fencedWrite``.
  var isConcurrency: Bool { ["40001", "40P01", "23505", "2201F"].contains(sqlState) }

  /// Whether the server does not accept writes: `read_only_sql_transaction`.
  var isStandby: Bool { sqlState == "25006" }

  /// The server does not accept writes. A connection to it is abandoned.
  static let standby = PostgreSQLFailure(
    sqlState: "25006", text: "the server is a standby, or read-only", isConnectionLost: true)

  /// Whether this error is more useful to report. An error that the user must correct is more useful than one that may
  /// disappear by itself. Of the latter, one that states that there are too many connections is the most useful.
  func isMoreTelling(than other: PostgreSQLFailure?) -> Bool {
    guard let other else { return true }
    return other.isTemporary && (!other.isFull || isFull || !isTemporary)
  }

  /// Whether the server, the role or the database has reached its limit of connections (`too_many_connections`), or a
  /// pooler has reached its limit. PgBouncer has one code for all refusals, so its text decides.
  var isFull: Bool {
    sqlState == "53300" || sqlState == "08P01" && text.contains("no more connections allowed")
  }

  /// Whether the write itself was valid, but subscribers are so far behind that the server has no space for
  /// another notification.
  var isNotificationQueueFull: Bool {
    sqlState == "54000" && (function == "PreCommit_Notify" || text.contains("NOTIFY queue"))
  }

  /// Whether the server will be available again, or another one will replace it.
  var isTemporary: Bool {
    guard let sqlState else { return isConnectionLost }
    return Self.temporary.contains(sqlState) || sqlState.hasPrefix("08")
  }

  /// `admin_shutdown`, `crash_shutdown`, `cannot_connect_now`, `too_many_connections`, and a primary that has become a standby:
  /// `read_only_sql_transaction`.
  private static let temporary: Set<String> = ["57P01", "57P02", "57P03", "53300", "25006"]

  /// Whether the code ends the session: the server has ended it, or it must not be used any more because it is
  /// read-only or has lost its prepared statements (`invalid_sql_statement_name`), as behind a pooler that has
  /// discarded them.
  static func endsSession(_ sqlState: String?) -> Bool {
    guard let sqlState else { return false }
    return sqlState.hasPrefix("57P") || sqlState.hasPrefix("08")
      || ["25P03", "25006", "26000"].contains(sqlState)
  }
}

extension StorageError {
  /// The error for a failure of PostgreSQL.
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
    // The database does not exist.
    case "3D": return .unsupported
    case "08", "53", "57": return .unavailable
    default: return .io
    }
  }
}

extension String {
  /// The words, separated by single spaces. Texts of libpq and servers may have several lines.
  var inOneLine: String { split(whereSeparator: \.isWhitespace).joined(separator: " ") }
}
