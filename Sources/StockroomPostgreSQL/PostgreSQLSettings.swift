import StockroomCore

/// How the engine wants its sessions to be.
struct PostgreSQLSettings: Sendable {
  let durability: Durability
  let timeLimit: Duration
  /// Whether a pooler may give each transaction another session of the server, so that nothing lasts beyond a transaction.
  let isPooled: Bool
  var access = StorageAccess.readWrite

  var preparesStatements: Bool { !isPooled }
  var isSessionKept: Bool { !isPooled }

  var statement: PostgreSQLStatement { isSessionKept ? .settings : .localSettings }

  /// Sets everything, for the session or for the transaction.
  var step: PostgreSQLConnection.Step {
    // The server takes no more milliseconds than that.
    let milliseconds = min(timeLimit, .milliseconds(Int32.max)).roundedMilliseconds
    let settings: [(name: String, value: String)] = [
      // Nothing that others may have made in a schema of the database takes the place of a function or an operator that is called here.
      ("search_path", "pg_catalog, pg_temp"),
      // A backslash in the name of a schema is a backslash.
      ("standard_conforming_strings", "on"),
      ("synchronous_commit", durability == .full ? "on" : "off"),
      ("default_transaction_isolation", "read committed"),
      // A call that has been given up here ends there too.
      ("statement_timeout", String(milliseconds)),
      ("lock_timeout", String(max(1, milliseconds / 2))),
      // A process that stands still in the middle of a transaction, or has lost its machine, does not hold up the others for ever.
      ("idle_in_transaction_session_timeout", "60000"),
      // One that waits for changes is idle for as long as there are none.
      ("idle_session_timeout", "0"),
      ("tcp_keepalives_idle", "20"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "4"),
      ("tcp_user_timeout", "40000"),
      // A session that waits for a lock looks whether anybody is still there: see ``PostgreSQLStatement/settings``.
      ("client_connection_check_interval", "1000"),
      // The plans do not depend on the parameters, nor on how small the table was when they were made.
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
