import StockroomCore
import Testing

@Suite struct SingleFlightTests {
  private final class Token: Sendable {}

  @Test("Values captured by the work are released before its caller resumes")
  func release() async throws {
    let flight = SingleFlight<Void>()
    for _ in 0..<500 {
      weak var probe: Token?
      do {
        let token = Token()
        probe = token
        try await flight.value { withExtendedLifetime(token) {} }
      }
      #expect(probe == nil)
    }
  }
}
