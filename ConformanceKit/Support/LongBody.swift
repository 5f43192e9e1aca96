import StockroomCore

/// A body that waits until it is released, and returns whether it was.
struct LongBody: Sendable {
  let hasBegun = Latch()
  let mayEnd = Latch()
  /// Set when it has been released, regardless of its later writes.
  let isReleased = Flag()
  /// Set when it has not been released in time, in any of its runs.
  let hasTimedOut = Flag()
  /// How long it waits.
  let timeout: Duration

  init(timeout: Duration) { self.timeout = timeout }

  /// The body: writes, waits until it is released, and writes. Once it has been released, later runs do not wait.
  func run(_ transaction: any StorageTransaction) throws -> Bool {
    try transaction.write(data("first"), key: key("long body"))
    hasBegun.signal()
    let wasReleased = mayEnd.wait(for: timeout)
    if wasReleased { isReleased.set() } else { hasTimedOut.set() }
    try transaction.write(data("second"), key: key("long body"))
    return wasReleased
  }

  /// Runs it in a transaction. Returns when it has begun.
  func begin(in engine: EngineUnderTest) async throws -> Task<Bool, any Error> {
    let transaction = onDedicatedThread { try await engine.withTransaction { try run($0) } }
    guard await hasBegun.waitElsewhere(for: timeout) else {
      throw Violation("the body of a transaction had not begun after \(timeout)")
    }
    return transaction
  }
}
