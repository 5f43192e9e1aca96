import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

/// An engine on the shared test server.
func newEngine(_ namespace: String, timeLimit: Duration = .seconds(300)) async throws
  -> PostgreSQLStorageEngine
{
  try await PostgreSQLServer.shared.start()
  return try await PostgreSQLStorageEngine(
    PostgreSQLServer.shared.connection, namespace: namespace, timeLimit: timeLimit)
}

extension PostgreSQLServer {
  /// Returns once the condition holds. Throws after five minutes.
  func wait(until condition: String) async throws { try await execute(Self.waiting(until: condition)) }

  /// The statement that waits for the condition.
  static func waiting(until condition: String) -> String {
    """
    DO $$ DECLARE
      last_moment CONSTANT timestamptz := clock_timestamp() + interval '5 minutes';
    BEGIN
      LOOP
        EXIT WHEN \(condition);
        ASSERT clock_timestamp() < last_moment, 'the condition does not hold';
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
      END LOOP;
    END $$
    """
  }

  /// Returns once a session with this name waits for a lock.
  func waitForLock(of name: String) async throws {
    try await wait(
      until: """
        EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)' AND wait_event_type = 'Lock')
        """)
  }
}

/// A unique namespace.
func newNamespace() -> String { "test_" + UUID().uuidString }

extension CacheKey: ExpressibleByStringLiteral {
  /// In tests, a literal is the key itself.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}

func key(_ number: Int) -> CacheKey { CacheKey(verbatim: "key-\(number)") }
func value(_ number: Int) -> Data { Data("value-\(number)".utf8) }

extension PostgreSQLServer {
  /// A primary, and a standby with synchronous replication.
  static func startPair(in directory: URL) async throws -> (
    primary: PostgreSQLServer, standby: PostgreSQLServer
  ) {
    let primary = PostgreSQLServer(directory: directory.appending(path: "1"), settings: clusterSettings)
    try await primary.start()
    let standby = PostgreSQLServer(
      directory: directory.appending(path: "2"), settings: clusterSettings, standbyOf: primary)
    try await primary.waitForStandby(standby)
    return (primary, standby)
  }
}
