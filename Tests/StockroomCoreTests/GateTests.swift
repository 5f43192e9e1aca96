import Foundation
import StockroomCore
import Testing

@Suite struct GateTests {
  /// The order of the events.
  private final class Journal: Sendable {
    let lines = MutexProtected<[String]>([])
    func note(_ line: String) { lines.withLock { $0.append(line) } }
  }

  @Test("Closing waits for the calls in progress, and a second close waits for the first")
  func close() async throws {
    let gate = Gate(path: "/somewhere")
    let journal = Journal()
    try gate.enter()
    let closers = (0..<3).map { _ in
      Task {
        try await gate.close { journal.note("released") }
        journal.note("closed")
      }
    }
    while gate.isOpen { await Task.yield() }
    journal.note("left")
    gate.leave()
    for closer in closers { try await closer.value }
    #expect(journal.lines.withLock { $0 } == ["left", "released", "closed", "closed", "closed"])

    let error = #expect(throws: StorageError.self) { try gate.enter() }
    #expect(error?.code == .closed)
    #expect(error?.message.contains("/somewhere") == true)
  }

  @Test("A failed release throws to the first caller, and the gate is still closed")
  func failure() async throws {
    let gate = Gate(path: "/somewhere")
    await #expect(throws: Refused.self) { try await gate.close { throw Refused() } }
    try await gate.close {}
    #expect(throws: StorageError.self) { try gate.enter() }
  }
}

private struct Refused: Error {}

extension Gate {
  /// Whether the gate admits calls.
  fileprivate var isOpen: Bool {
    do { try enter() } catch { return false }
    leave()
    return true
  }
}
