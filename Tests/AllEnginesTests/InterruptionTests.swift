import Foundation
import StockroomEngines
import Testing

@Suite("Interrupted work") struct InterruptionTests {
  @Test(
    "Work that ends well after a signal is interrupted all the same", arguments: [SIGINT, SIGTERM, SIGHUP])
  func successful(number: Int32) async {
    // In a process of its own, whose signals are nobody else's.
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

  @Test("What fails after a signal is not lost")
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

  @Test("Without a signal the work's result and error are the caller's")
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
