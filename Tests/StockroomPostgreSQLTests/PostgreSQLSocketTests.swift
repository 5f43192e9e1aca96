@testable import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: waiting for sockets")
struct PostgreSQLSocketTests {
  @Test("A number of milliseconds is at least one and at most the server's maximum")
  func milliseconds() {
    let durations: [Duration] = [.seconds(-1), .zero, .microseconds(1_500), .seconds(Int64.max)]
    #expect(durations.map(\.roundedMilliseconds) == [1, 1, 1, Int32.max])
  }

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
