import Testing

@testable import ConformanceKit

@Suite("Callers' threads that are blocked")
struct CallerWaitTests {
  /// - Parameters:
  ///   - waits: The milliseconds that calls have waited, in order.
  ///   - withoutEngine: The milliseconds that the thread has waited outside each call, in order.
  private func cause(of waits: [Double], withoutEngine: [Double]) -> CallerWaits.Cause? {
    var counted = CallerWaits()
    while !counted.areDecided {
      let number = counted.calls
      counted.note(
        .seconds(waits[number % waits.count] / 1_000),
        withoutEngine: .seconds(withoutEngine[number % withoutEngine.count] / 1_000))
    }
    return counted.cause
  }

  @Test("A wait in each call is attributed to the engine on an idle machine")
  func quietMachine() {
    #expect(cause(of: [5], withoutEngine: [0.1, 0.2, 0.05]) == .engine)
    #expect(cause(of: [1.9, 30, 2.5], withoutEngine: [0.2]) == .engine)
  }

  /// Regression: with the thread sanitizer, while other work used both processors, the check failed for an engine in
  /// memory.
  @Test("Waits for locks of threads that the machine does not run are not attributed to the engine")
  func busyMachine() {
    #expect(cause(of: [3, 7, 12, 4], withoutEngine: [2, 6, 4]) == .machine)
    #expect(cause(of: [60], withoutEngine: [20]) == .machine)
  }

  @Test("A long wait in each call is attributed to the engine, even on a busy machine")
  func longWaits() {
    #expect(cause(of: [30], withoutEngine: [4, 7, 2]) == .engine)
  }

  @Test("An engine that waits in only a few calls passes the check of blocked threads")
  func fewWaits() {
    #expect(cause(of: [0.01, 0.02, 9, 0, 9], withoutEngine: [0.1]) == nil)
    #expect(cause(of: [0.9], withoutEngine: [0]) == nil)
  }
}
