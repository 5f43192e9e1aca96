import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

/// An engine on the server that most tests share.
func newEngine(_ namespace: String, timeLimit: Duration = .seconds(300)) async throws
  -> PostgreSQLStorageEngine
{
  try await PostgreSQLServer.shared.start()
  return try await PostgreSQLStorageEngine(
    PostgreSQLServer.shared.connection, namespace: namespace, timeLimit: timeLimit)
}

extension PostgreSQLServer {
  /// Returns once the condition holds, and throws if it does not within half a minute.
  func wait(until condition: String) async throws { try await execute(Self.waiting(until: condition)) }

  /// The statement that does so.
  static func waiting(until condition: String) -> String {
    """
    DO $$ DECLARE
      last_moment CONSTANT timestamptz := clock_timestamp() + interval '30 seconds';
    BEGIN
      LOOP
        EXIT WHEN \(condition);
        ASSERT clock_timestamp() < last_moment, 'the condition does not hold';
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
      END LOOP;
    END $$
    """
  }

  /// Returns once a session of that name waits for a lock.
  func waitForLock(of name: String) async throws {
    try await wait(
      until: """
        EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)' AND wait_event_type = 'Lock')
        """)
  }
}

/// A namespace that nothing else uses.
func newNamespace() -> String { "test_" + UUID().uuidString }

extension CacheKey: ExpressibleByStringLiteral {
  /// The key itself, in tests.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}

func key(_ number: Int) -> CacheKey { CacheKey(verbatim: "key-\(number)") }
func value(_ number: Int) -> Data { Data("value-\(number)".utf8) }

extension PostgreSQLServer {
  /// A primary, and a standby that has all that it acknowledges.
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
