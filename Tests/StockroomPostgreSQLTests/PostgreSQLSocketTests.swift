@testable import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: waiting for sockets")
struct PostgreSQLSocketTests {
  @Test("Data that arrived while the process was stopped is found after the deadline")
  func arrivedBeforeDeadline() throws {
    let signal = try PostgreSQLSignal()
    let deadline = ContinuousClock.now
    let empty = try PostgreSQLSocket.wait(for: signal.reading, until: deadline)
    #expect(!empty.reading && !empty.writing)
    signal.send()
    let arrived = try PostgreSQLSocket.wait(for: signal.reading, writing: true, until: deadline)
    #expect(arrived.reading && !arrived.writing)
  }
}
