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

/// A namespace that nothing else uses.
func newNamespace() -> String { "test_" + UUID().uuidString }

func key(_ number: Int) -> CacheKey { CacheKey(verbatim: "key-\(number)") }
func value(_ number: Int) -> Data { Data("value-\(number)".utf8) }
