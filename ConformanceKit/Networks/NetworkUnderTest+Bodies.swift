#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Transactions whose connection is lost while their body runs.

/// The number in an entry before a body adds 1 to it, and the number that another engine writes meanwhile.
private let numberBefore = 0
private let numberOfAnother = 100

extension NetworkUnderTest {
  /// Ends all connections during the body of a transaction, between two of its writes, and has another engine change
  /// what the body has read. An engine that connects again must not continue where the server has given up.
  func checkCutBody() async throws {
    let passage = try NetworkProxy(to: server.address)
    defer { passage.close() }
    let direct = try await context.untilReached { try await context.open(through: passage.port, to: server) }
    defer { direct.release() }
    for round in 0..<3 {
      context.noteProgress()
      try await untilAvailable { try await $0.write(data("\(numberBefore)"), key: key("number")) }
      let (first, second) = (key("first \(round)"), key("second \(round)"))
      let change = ChangeDuringBody(by: direct)
      let error: (any Error)?
      do {
        try await runCutBody(writing: first, second, change)
        error = nil
      } catch let thrown {
        error = thrown
      }
      let isChanged = try await change.end()
      let code = ((error as? CallFailure)?.error as? StorageError)?.code
      // The engine may have run the body again, and given up.
      if let error, code != .unavailable, code != .outcomeUnknown, code != .conflict { throw error }
      let contents = try await contents()
      let written = [first, second].count { contents[$0] != nil }
      let what = "of two writes of a transaction whose connection was cut between them"
      try expect(written != 1, "one \(what) was done")
      try expect(
        code == .outcomeUnknown || written == (error == nil ? 2 : 0),
        "\(written) \(what) were done, and it \(error == nil ? "returned" : "threw")")
      // Another engine's change came either before the body, which then reads it, or after the body.
      guard isChanged, contents[key("number")] == data("\(numberBefore + 1)") else { continue }
      throw Violation(
        "a transaction whose connection was cut undid what another engine had written since its body had read it",
        rule: .t1)
    }
  }

  /// Runs a body that adds 1 to a number and writes two keys.
  private func runCutBody(
    writing first: CacheKey, _ second: CacheKey, _ change: ChangeDuringBody
  ) async throws {
    try await engine.withTransaction { [proxy] transaction in
      let number = try transaction.number(key("number"))
      try transaction.write(data("v"), key: first)
      change.makeOnce { proxy.endConnections() }
      // An engine may notice only now that the connection is lost.
      _ = try transaction.read(key: key("absent"))
      try transaction.write(data("v"), key: second)
      try transaction.write(data("\(number + 1)"), key: key("number"))
    }
  }
}

/// A change of the number by another engine while a body runs.
private struct ChangeDuringBody: Sendable {
  private let isWanted: Flag
  private let isOver: Flag
  private let isMade: Latch
  private let task: Task<Bool, any Error>

  init(by other: EngineUnderTest) {
    let (isWanted, isOver, isMade) = (Flag(), Flag(), Latch())
    (self.isWanted, self.isOver, self.isMade) = (isWanted, isOver, isMade)
    task = onDedicatedThread {
      defer { isMade.signal() }
      while !isWanted.isSet, !isOver.isSet { await letTimePass() }
      guard isWanted.isSet else { return false }
      do {
        try await other.write(data("\(numberOfAnother)"), key: key("number"))
        return true
      } catch is CallFailure {
        // The body may have a lock on the server, which does not know yet that its connection is lost.
        return false
      }
    }
  }

  /// Calls `cut` and waits for the change, but only in the first run of the body, and for at most a second, because the
  /// change may have to wait for the body.
  func makeOnce(_ cut: () -> Void) {
    if isWanted.isSet { return }
    cut()
    isWanted.set()
    _ = isMade.wait(for: .seconds(1))
  }

  /// Waits until the change has been made, or cannot be made any more. Returns whether it has been made.
  func end() async throws -> Bool {
    isOver.set()
    return try await task.value
  }
}
