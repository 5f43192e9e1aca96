import FaultyEngineWorker
import Foundation
import StockroomCore

/// Its server performs one call at a time. A call that has waited for its turn for too long throws `unavailable`.
struct TimesOutInAQueue: InterceptingEngine {
  let base: ReferenceEngine
  private let turn = Places(1)

  init(base: ReferenceEngine) { self.base = base }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let start = ContinuousClock.now
    await turn.enter()
    defer { turn.leave() }
    guard ContinuousClock.now - start < .milliseconds(100) else {
      throw StorageError(.unavailable, "The server has too much to do.")
    }
    try await Task.sleep(for: .milliseconds(1))
    return try await work()
  }
}
