import Foundation
import StockroomEngines

/// Another program that makes a change in a transaction, and ends the transaction on request.
struct OtherProgram {
  private let server = PostgreSQLServer.shared
  /// The table that receives a row as the signal to continue.
  private let table: String
  private let task: Task<Void, any Error>

  /// Returns once the change has been made.
  ///
  /// - Parameters:
  ///   - end: `COMMIT` or `ROLLBACK`.
  ///   - namespace: The schema of unqualified table names.
  init(_ change: String, _ end: String, in namespace: String) async throws {
    let (server, name) = (server, "other_\(UUID().uuidString)")
    let table = "\"\(namespace)\".\"\(name)\""
    self.table = table
    try await server.execute("CREATE TABLE \(table) (is_ended bool)")
    let goingOn = PostgreSQLServer.waiting(until: "EXISTS (SELECT FROM \(table))")
    task = Task {
      try await server.execute(
        """
        SET application_name = '\(name)'; SET search_path = "\(namespace)";
        BEGIN; \(change); \(goingOn); \(end)
        """)
    }
    try await server.wait(
      until:
        "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)' AND wait_event = 'PgSleep')")
  }

  func end() async throws {
    try await server.execute("INSERT INTO \(table) VALUES (true)")
    try await task.value
  }
}
