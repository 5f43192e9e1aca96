import Foundation
import StockroomEngines
import TestFixtures
import Testing

@Suite("Interrupted work") struct InterruptionTests {
  @Test(
    "Work that returns normally after a signal still throws SignalReceived", .ownThreads,
    arguments: [SIGINT, SIGTERM, SIGHUP])
  func successful(number: Int32) async {
    // In a separate process, because signals affect the whole process.
    await #expect(processExitsWith: .success) { [number = number as Int32] in
      signal(number, SIG_DFL)
      let error = await #expect(throws: SignalReceived.self) {
        try await untilInterrupted {
          kill(getpid(), number)
          while !Task.isCancelled { await Task.yield() }
        }
      }
      #expect(error?.signal == number)
      #expect(error?.cause == nil)
    }
  }

  @Test("An error thrown after a signal is kept as the cause", .ownThreads)
  func failing() async {
    await #expect(processExitsWith: .success) {
      signal(SIGTERM, SIG_DFL)
      let error = await #expect(throws: SignalReceived.self) {
        try await untilInterrupted {
          kill(getpid(), SIGTERM)
          while !Task.isCancelled { await Task.yield() }
          throw CocoaError(.fileWriteUnknown)
        }
      }
      #expect(error?.signal == SIGTERM)
      #expect(error?.cause is CocoaError)
    }
  }

  @Test("Without a signal, the result or the error of the work reaches the caller", .ownThreads)
  func uninterrupted() async {
    await #expect(processExitsWith: .success) {
      let result = try await untilInterrupted { 7 }
      #expect(result == 7)
      await #expect(throws: CocoaError.self) {
        try await untilInterrupted { throw CocoaError(.fileWriteUnknown) }
      }
    }
  }
}
