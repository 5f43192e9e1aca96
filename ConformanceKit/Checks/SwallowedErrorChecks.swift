#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Bodies that continue after a write has thrown: rule T4.

extension CheckDefinition {
  @CheckList static var swallowedErrorChecks: [CheckDefinition] {
    Check(
      .t4, "transactions.swallowed-errors",
      "if a body goes on after a conflict that a write has thrown, the transaction throws and has done nothing, or "
        + "returns and has done all writes of the last run that did not throw",
      needs: .transactions
    ) { try await checkSwallowedErrors($0) }
  }
}

private func checkSwallowedErrors(_ context: CheckContext) async throws {
  let engines = try await context.openTwiceIfPossible()
  for round in 0..<context.byLevel(quick: 4, standard: 12, exhaustive: 200) {
    context.noteProgress()
    let writer = engines[round % engines.count]
    // An engine may abort a body each time that others have written meanwhile.
    try await EngineUnderTest.$patienceWithConflicts.withValue(.zero) {
      try await writeWhatHasChanged(engines[0], by: writer, inTransaction: round % 4 > 1)
      try await writeCrosswise([engines[0], writer])
    }
  }
}

/// The writes in the last run of a body, except those that threw.
private final class WritesOfBody: Sendable {
  private let values = MutexProtected<[CacheKey: Data]>([:])

  var done: [CacheKey: Data] { values.withLock { $0 } }

  func begin() { values.withLock { $0 = [:] } }

  func write(_ data: Data, _ key: CacheKey, in transaction: any StorageTransaction) throws {
    try transaction.write(data, key: key)
    values.withLock { $0[key] = data }
  }

  /// Ignores an error of the write, as a body does that then writes something else.
  func tryToWrite(_ data: Data, _ key: CacheKey, in transaction: any StorageTransaction) throws {
    do { try write(data, key, in: transaction) } catch is StorageError {}
  }
}

/// Whether the call returned instead of throwing a `StorageError`.
private func returns(_ call: () async throws -> Void) async throws -> Bool {
  do {
    try await call()
    return true
  } catch let failure as CallFailure where failure.error is StorageError {
    return false
  }
}

/// Has a body write a key that it has read and others have written meanwhile, between two keys of its own.
private func writeWhatHasChanged(
  _ engine: EngineUnderTest, by writer: EngineUnderTest, inTransaction: Bool
) async throws {
  let (counter, first, last) = (key("counter"), key("written first"), key("written last"))
  try await engine.remove(keys: [first, last])
  try await engine.write(data("1"), key: counter)
  let (writes, hasWritten) = (WritesOfBody(), Flag())
  let hasReturned = try await returns {
    try await engine.withTransaction {
      try $0.number(counter)
    } meanwhile: {
      let isDone = try await returns {
        if inTransaction {
          try await writer.withTransaction { try $0.write(data("100"), key: counter) }
        } else {
          try await writer.write(data("100"), key: counter)
        }
      }
      if isDone { hasWritten.set() }
    } then: { transaction, number in
      writes.begin()
      try writes.write(data("kept"), first, in: transaction)
      try writes.tryToWrite(data("\(number + 1)"), counter, in: transaction)
      try writes.tryToWrite(data("kept"), last, in: transaction)
    }
  }
  for own in [first, last] {
    try expectOwn(own, of: writes, hasReturned, try await engine.read(key: own))
  }
  // If the write of the others threw, for example `conflict`, only the body has written the counter.
  guard hasWritten.isSet else { return }
  let found = try await engine.read(key: counter)
  // The body comes before the others, or has read what they had written.
  let isCounted = hasReturned && found == data("101") && writes.done[counter] == found
  try expect(
    found == data("100") || isCounted,
    "read(key:) was \(describe(found as Any)) after others had written 100, during a body that had read 1 or 100 and "
      + "wrote a number greater by one")
}

/// Has two bodies each write one of two keys, and then the other one.
private func writeCrosswise(_ engines: [EngineUnderTest]) async throws {
  let (owns, shared) = (keys(2, prefix: "own of "), keys(2, prefix: "shared "))
  try await engines[0].remove(keys: owns + shared)
  let barrier = BodyBarrier()
  let outcomes = try await gather(0..<2) { task in
    let (writes, value) = (WritesOfBody(), data("by \(task)"))
    let hasReturned = try await returns {
      try await engines[task].withTransaction { transaction in
        writes.begin()
        try writes.write(value, owns[task], in: transaction)
        try writes.write(value, shared[task], in: transaction)
        barrier.arrive()
        try writes.tryToWrite(value, shared[1 - task], in: transaction)
      }
    }
    return (hasReturned, writes)
  }
  for (own, (hasReturned, writes)) in zip(owns, outcomes) {
    try expectOwn(own, of: writes, hasReturned, try await engines[0].read(key: own))
  }
  for key in shared {
    let allowed = outcomes.compactMap { hasReturned, writes in hasReturned ? writes.done[key] : nil }
    let found = try await engines[0].read(key: key)
    try expect(
      found.map { allowed.contains($0) } ?? allowed.isEmpty,
      "read(key:) was \(describe(found as Any)) after transactions that returned had written \(describe(allowed))"
    )
  }
}

/// Fails unless a key that only this transaction writes has the value that the transaction must have left.
private func expectOwn(
  _ key: CacheKey, of writes: WritesOfBody, _ hasReturned: Bool, _ found: Data?
) throws {
  try expect(
    found, is: hasReturned ? writes.done[key] : nil,
    "read(key:) of \(key), "
      + (writes.done[key] == nil ? "whose write had thrown in" : "which had been written by")
      + " a body whose transaction \(hasReturned ? "returned" : "threw"),")
}
