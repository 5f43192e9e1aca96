import Testing

@testable import ConformanceKit

@Suite("Threads of callers that stand still")
struct CallerWaitTests {
  /// - Parameters:
  ///   - waits: The milliseconds that calls have waited, in turn.
  ///   - withoutEngine: Those that the thread has waited beside each, in turn.
  private func cause(of waits: [Double], withoutEngine: [Double]) -> CallerWaits.Cause? {
    var counted = CallerWaits()
    for number in 0..<20 {
      counted.note(
        .seconds(waits[number % waits.count] / 1_000),
        withoutEngine: .seconds(withoutEngine[number % withoutEngine.count] / 1_000))
    }
    return counted.cause
  }

  @Test("A wait in each call is the engine's where the machine is quiet")
  func quietMachine() {
    #expect(cause(of: [5], withoutEngine: [0.1, 0.2, 0.05]) == .engine)
    #expect(cause(of: [1.9, 30, 2.5], withoutEngine: [0.2]) == .engine)
  }

  /// As with the thread sanitizer while others hold both processors, where an engine in memory alone was said to wait.
  @Test("Waits for locks that threads hold which the machine does not run are not the engine's")
  func busyMachine() {
    #expect(cause(of: [3, 7, 12, 4], withoutEngine: [2, 6, 4]) == .machine)
    #expect(cause(of: [60], withoutEngine: [20]) == .machine)
  }

  @Test("A long wait in each call is the engine's on a busy machine, too")
  func longWaits() {
    #expect(cause(of: [30], withoutEngine: [4, 7, 2]) == .engine)
  }

  @Test("An engine that waits in some calls is not said to wait")
  func someWaits() {
    #expect(cause(of: [0.01, 0.02, 9, 0, 9], withoutEngine: [0.1]) == nil)
    #expect(cause(of: [0.9], withoutEngine: [0]) == nil)
  }
}
