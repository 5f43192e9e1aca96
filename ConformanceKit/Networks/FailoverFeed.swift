#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A subscriber and a writer, in a separate place, during a failover: rule X5.
struct FailoverFeed: Sendable {
  /// The proxy between the subscriber and the server.
  private let listening: NetworkProxy
  private let writer: NetworkUnderTest
  private let subscriber: ChangeSubscriber
  private let missed = key("while there was no server")

  init(_ network: NetworkUnderTest) async throws {
    let (context, server) = (network.context, network.server)
    let directory = context.root.appending(path: "place of a feed", directoryHint: .isDirectory)
    let listening = try NetworkProxy(to: server.address)
    context.addTeardown { listening.close() }
    let writing = try NetworkProxy(to: server.address)
    context.addTeardown { writing.close() }
    let engine = try await context.untilReached {
      try await context.open(through: listening.port, to: server, at: directory)
    }
    let other = try await context.untilReached {
      try await context.open(through: writing.port, to: server, at: directory)
    }
    context.addTeardown {
      engine.release()
      other.release()
    }
    self.listening = listening
    writer = NetworkUnderTest(context: context, server: server, proxy: writing, engine: other)
    subscriber = try await context.untilReached { try await ChangeSubscriber(to: engine, context) }
    // An engine must not compare what it has received from one server with the state of another.
    for number in 0..<3 { try await expectCovered(key("\(number)"), "a write before a failover") }
  }

  /// Disconnects the subscriber from its server.
  func loseServer() { listening.set(.away) }

  /// Writes while the subscriber has no server, then connects it to the new one.
  func findServer(at address: ConformanceServer.Address) async throws {
    for proxy in [listening, writer.proxy] { proxy.target(address) }
    writer.proxy.endConnections()
    try await write(missed)
    listening.set(.open)
  }

  /// Checks that missed and later changes are covered for the subscriber.
  func check() async throws {
    writer.context.noteProgress()
    try await covering {
      try await subscriber.expectCovered([missed], "a write before a new server was reached")
    }
    for number in 0..<3 {
      try await expectCovered(key("\(number) afterwards"), "a write after a new server was reached")
    }
  }

  private func write(_ key: CacheKey) async throws {
    try await writer.untilAvailable { try await $0.write(data("v"), key: key) }
  }

  private func expectCovered(_ key: CacheKey, _ what: String) async throws {
    writer.context.noteProgress()
    try await write(key)
    try await covering { try await subscriber.expectCovered([key], what) }
  }

  private func covering(_ body: () async throws -> Void) async throws {
    do {
      try await body()
    } catch let violation as Violation {
      throw Violation(violation.description, rule: .x5, evidence: violation.evidence)
    }
  }
}
