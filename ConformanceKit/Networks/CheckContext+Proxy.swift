extension CheckContext {
  /// Calls `body` with an engine that connects to the server through a proxy.
  func throughProxy(_ body: (NetworkUnderTest) async throws -> Void) async throws {
    try await withServer { server in
      let proxy = try NetworkProxy(to: server.address)
      defer { proxy.close() }
      let engine = try await untilReached { try await open(through: proxy.port, to: server) }
      let network = NetworkUnderTest(context: self, server: server, proxy: proxy, engine: engine)
      do {
        try await body(network)
      } catch {
        proxy.set(.open)
        try? await close(engine)
        throw error
      }
      proxy.set(.open)
      try await close(engine)
    }
  }

  /// How often the network fails.
  var networkRounds: Int {
    switch budget.level {
    case .quick: 3
    case .standard: 20
    case .exhaustive: 100
    }
  }
}
