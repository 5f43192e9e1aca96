import StockroomCore

/// The settings of the engine's sessions.
struct PostgreSQLSettings: Sendable {
  let durability: Durability
  let timeLimit: Duration
  /// Whether a pooler may assign each transaction another session of the server, so that nothing persists
  /// beyond a transaction.
  let isPooled: Bool
  var access = StorageAccess.readWrite

  var preparesStatements: Bool { !isPooled }
  var isSessionKept: Bool { !isPooled }

  var statement: PostgreSQLStatement { isSessionKept ? .settings : .localSettings }

  /// Applies all settings, for the session or for the transaction.
  var step: PostgreSQLConnection.Step {
    let milliseconds = timeLimit.roundedMilliseconds
    let settings: [(name: String, value: String)] = [
      // No object that others may have created in a schema of the database can replace a function or an
      // operator that is called here.
      ("search_path", "pg_catalog, pg_temp"),
      // A backslash in the name of a schema is an ordinary character.
      ("standard_conforming_strings", "on"),
      ("synchronous_commit", durability == .full ? "on" : "off"),
      ("default_transaction_isolation", "read committed"),
      // A call that has been abandoned here ends on the server too.
      ("statement_timeout", String(milliseconds)),
      ("lock_timeout", String(max(1, milliseconds / 2))),
      // A process that is stopped in the middle of a transaction, or whose machine is lost, does not block
      // the others forever.
      ("idle_in_transaction_session_timeout", "60000"),
      // A session that waits for changes is idle as long as there are none.
      ("idle_session_timeout", "0"),
      ("tcp_keepalives_idle", "20"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "4"),
      ("tcp_user_timeout", "40000"),
      // A session that waits for a lock checks whether its client still exists: see
      // ``PostgreSQLStatement/settings``.
      ("client_connection_check_interval", "1000"),
      // The plans do not depend on the parameters, nor on the size of the table when they were made.
      ("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("enable_bitmapscan", "off"),
      ("jit", "off"), ("client_min_messages", "warning"),
    ]
    var (names, values) = (PostgreSQLArray(), PostgreSQLArray())
    for (name, value) in settings {
      Array(name.utf8).withUnsafeBytes { names.append($0) }
      Array(value.utf8).withUnsafeBytes { values.append($0) }
    }
    return PostgreSQLConnection.Step(statement, names.parameter, values.parameter)
  }
}

extension PostgreSQLConnection.Step {
  /// Limits the waits for locks until the end of the transaction.
  init(limitingLockWaits limit: Duration) {
    self.init(.limitLockWait, .text(String(limit.roundedMilliseconds)))
  }
}
