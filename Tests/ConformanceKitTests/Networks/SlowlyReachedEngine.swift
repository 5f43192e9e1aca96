import FaultyEngineWorker
import Foundation
import StockroomCore

/// Reaches its server so slowly that a read on a new connection does not come to its end in time, as where everything takes its time.
struct SlowlyReachedEngine: FaultyEngine {
  let base: WireEngine

  init(_ directory: URL, port: UInt16) async throws {
    base = try await WireEngine(directory, port: port, fault: .none)
    try await Task.sleep(for: WireEngine.timeLimit * 3 / 5)
  }

  private let late = StorageError(.unavailable, "The server has not answered in time.")

  func read(key: CacheKey) async throws -> Data? { throw late }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] { throw late }
}
