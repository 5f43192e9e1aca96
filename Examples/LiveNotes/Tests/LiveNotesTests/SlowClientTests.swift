import Foundation
import Testing

@Suite("Slow clients", .timeLimit(.minutes(60)))
struct SlowClientTests {
  @Test("A request that arrives byte by byte is ended by the limit for requests, though it is never idle")
  func slowRequest() async throws {
    let server = try await LiveServer.start(["--engine", "memory", "--time-limit", "1"])
    for method in ["GET", "POST"] {
      let head = """
        \(method) /notes HTTP/1.1\r
        Host: 127.0.0.1:\(server.port)\r
        Content-Type: application/json\r
        Content-Length: 1000000\r
        \r

        """
      let isEnded = try await onDedicatedThread { [port = server.port] in
        let socket = try connectToLoopback(port: port)
        defer { close(socket) }
        guard sendAll(Data(head.utf8), to: socket) else { return true }
        // For at least five minutes.
        for _ in 0..<15_000 {
          usleep(20_000)
          if !sendAll(Data(" ".utf8), to: socket) { return true }
        }
        return false
      }
      #expect(isEnded, "\(method)")
    }
    withExtendedLifetime(server) {}
  }

  @Test("A client that does not read its answers is disconnected, and a stream of events that is read is not")
  func slowReader() async throws {
    let server = try await LiveServer.start(["--engine", "memory", "--time-limit", "1"])
    let reader = try EventReader(server, "/events?panel=notes")
    _ = try await reader.events { !$0.isEmpty }
    try await onDedicatedThread { [port = server.port] in
      let socket = try connectToLoopback(port: port, receiveBuffer: 4_096)
      defer { close(socket) }
      let request = Data("GET /list.js HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n\r\n".utf8)
      // The server reads no further request while it cannot send a response, until it resets the connection.
      while sendAll(request, to: socket) {}
    }
    // Retries, since a busy machine can exceed the time limit.
    while (try? await server.add("Milk")) == nil {}
    _ = try await reader.events { $0.contains { $0.data.contains("Milk") } }
  }
}
