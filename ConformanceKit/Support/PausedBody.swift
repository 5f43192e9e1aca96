import StockroomCore

/// A transaction with a long body.
struct PausedBody: Sendable {
  private let hasBegun: Flag
  private let task: Task<Void, any Error>
  private let ended: Flag

  /// - Parameter body: The body, which must call `pause` once. `pause` blocks its thread for this many milliseconds.
  init(
    in engine: EngineUnderTest, milliseconds: Int,
    body: @escaping @Sendable (any StorageTransaction, _ pause: () -> Void) throws -> Void
  ) {
    let (hasBegun, ended) = (Flag(), Flag())
    (self.hasBegun, self.ended) = (hasBegun, ended)
    task = onDedicatedThread {
      defer { ended.set() }
      try await engine.withTransaction { transaction in
        try body(transaction) {
          hasBegun.set()
          System.pauseThread(milliseconds: milliseconds)
        }
      }
    }
  }

  /// Waits until the pause in the body has begun.
  func begin() async throws {
    while !hasBegun.isSet, !ended.isSet { try await yieldToAllThreads() }
    if !hasBegun.isSet { try await task.value }
  }

  /// Waits until the transaction has returned.
  func end() async throws { try await task.value }
}
