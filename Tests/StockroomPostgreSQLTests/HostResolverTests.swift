import Dispatch
@testable import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: host names") struct HostResolverTests {
  @Test("Concurrent lookups of one name share a thread, and a later one looks it up again")
  func shared() throws {
    let mayAnswer = DispatchSemaphore(value: 0)
    let first = try HostResolver.resolver(of: "shared.invalid") { _ in
      mayAnswer.wait()
      return ["192.0.2.1"]
    }
    let second = try HostResolver.resolver(of: "shared.invalid") { _ in ["192.0.2.2"] }
    let other = try HostResolver.resolver(of: "other.invalid") { _ in ["192.0.2.3"] }
    #expect(first === second)
    #expect(first !== other)
    // The lookup has not finished yet.
    #expect(try addresses(of: first, within: .zero) == nil)
    mayAnswer.signal()
    #expect(try addresses(of: first) == ["192.0.2.1"])
    #expect(try addresses(of: second) == ["192.0.2.1"])
    let later = try HostResolver.resolver(of: "shared.invalid") { _ in ["192.0.2.4"] }
    #expect(try addresses(of: later) == ["192.0.2.4"])
  }

  private func addresses(of resolver: HostResolver, within limit: Duration = .seconds(60)) throws -> [String]?
  {
    try resolver.addresses(until: .now + limit, meanwhile: {})
  }
}
