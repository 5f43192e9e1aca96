import Foundation
import Testing

@Suite("Names of the server", .timeLimit(.minutes(60)))
struct AllowedHostTests {
  @Test("Requests are answered under every allowed name and address, with any port, and under no other")
  func names() async throws {
    let server = try await LiveServer.start(
      ["--engine", "memory", "--allowed-host", "Notes.local", "--allowed-host", "fe80::1"])
    let hosts = [
      "127.0.0.1": 200, "localhost:1": 200, "[::1]:\(server.port)": 200, "notes.local": 200,
      "NOTES.local:80": 200, "[fe80::1]": 200, "[FE80::1]:8080": 200,
      "notes.local.example": 421, "evil.notes.local": 421, "[fe80::2]": 421, "0.0.0.0": 421,
    ]
    for (host, status) in hosts {
      let answer = try await server.ask("GET", "/notes", headers: ["Host": host])
      #expect(answer.status == status, "\(host)")
    }
  }
}
