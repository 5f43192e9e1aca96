import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

@Suite("Transactions that are aborted with conflict")
struct ConflictTests {
  /// Regression: it was retried for only ten seconds, even if the other transaction took longer.
  @Test("A transaction that is aborted during another one's body is retried until that body has ended")
  func besideLongBody() async throws {
    let claims = FaultyEngineCase.claimsOfTransactions
    let (hasBegun, mayEnd) = (Latch(), Latch())
    let end = ContinuousClock.now + .milliseconds(1_500)
    let engine = EngineUnderTest(
      OneTransactionAtATime(base: try ReferenceEngine(claiming: claims)) { conflictCount in
        if conflictCount > 450, ContinuousClock.now > end { mayEnd.signal() }
      }, noting: CheckProgress())
    try await EngineUnderTest.$patienceWithConflicts.withValue(.seconds(1)) {
      async let isReleased = engine.withTransaction { _ -> Bool in
        hasBegun.signal()
        return mayEnd.wait(for: .seconds(600))
      }
      let isUnderWay = await hasBegun.waitElsewhere(for: .seconds(600))
      try await engine.withTransaction { try $0.write(data("v"), key: key("k")) }
      let hasEnded = try await isReleased
      #expect(isUnderWay && hasEnded)
    }
    let written = try await engine.read(key: key("k"))
    #expect(written == data("v"))
  }

  @Test("A transaction that is aborted without a concurrent one is not retried forever")
  func besideNone() async throws {
    let claims = FaultyEngineCase.claimsOfTransactions
    let engine = EngineUnderTest(
      AlwaysGivesUp(base: try ReferenceEngine(claiming: claims)), noting: CheckProgress())
    await EngineUnderTest.$patienceWithConflicts.withValue(.zero) {
      await #expect(throws: CallFailure.self) { try await engine.withTransaction { _ in } }
    }
  }
}

/// Aborts every transaction.
private struct AlwaysGivesUp: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    throw StorageError(.conflict, "Others have changed what the transaction has read.")
  }
}

/// Runs one transaction at a time, and aborts others meanwhile, as rule T4 allows.
private final class OneTransactionAtATime: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((isBusy: false, conflictCount: 0))
  private let note: @Sendable (_ conflictCount: Int) -> Void

  /// - Parameter note: Called with the number of conflicts at each aborted transaction.
  init(base: ReferenceEngine, note: @escaping @Sendable (_ conflictCount: Int) -> Void) {
    (self.base, self.note) = (base, note)
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let conflictCount = state.withLock { state -> Int? in
      if state.isBusy {
        state.conflictCount += 1
        return state.conflictCount
      }
      state.isBusy = true
      return nil
    }
    if let conflictCount {
      note(conflictCount)
      throw StorageError(.conflict, "Another transaction runs.")
    }
    defer { state.withLock { $0.isBusy = false } }
    return try await base.withTransaction(body)
  }
}
