import Foundation
import Testing

@Suite("The server", .timeLimit(.minutes(60)))
struct ServerTests {
  @Test("Notes are added, changed, removed and put back, and keep their order")
  func notes() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let first = try await server.add("Milk", tags: [" home ", "home", ""])
    let second = try await server.add("Bread")
    #expect(first.tags == ["home"])
    #expect(try await server.notes() == [first, second])

    let changed = try await server.ask(
      "PATCH", "/notes/\(first.id)", json: ["done": true, "favourite": true])
    var expected = first
    (expected.done, expected.favourite) = (true, true)
    #expect(try changed.decoded() == expected)
    #expect(try await server.ask("GET", "/notes/\(first.id)").decoded() == expected)

    let removal: LiveServer.Removal = try await server.ask("DELETE", "/notes/\(first.id)").decoded()
    #expect(try await server.notes() == [second])
    #expect(try await server.ask("POST", "/undo/\(removal.undo)").status == 200)
    #expect(Set(try await server.notes().map(\.id)) == [first.id, second.id])
    #expect(try await server.ask("POST", "/undo/\(removal.undo)").status == 410)

    let cleared: LiveServer.Removal = try await server.ask("DELETE", "/notes?which=done").decoded()
    #expect(cleared.removed == 1)
    #expect(try await server.notes() == [second])
    let all: LiveServer.Removal = try await server.ask("DELETE", "/notes?which=all").decoded()
    #expect(try await server.notes() == [])
    #expect(try await server.ask("POST", "/undo/\(all.undo)").status == 200)
    #expect(try await server.notes() == [second])
  }

  @Test("A draft that is sent twice makes one note, even if the note has been changed in between")
  func sentTwice() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let id = UUID()
    let first = try await server.add("Milk", id: id)
    let again = try await server.add("Milk", id: id)
    #expect(first == again)
    var changed = first
    (changed.text, changed.done) = ("Two bottles of milk", true)
    try await server.ask("PATCH", "/notes/\(id)", json: Change(text: changed.text, done: true))
    #expect(try await server.add("Milk", id: id) == changed)
    #expect(try await server.notes() == [changed])
  }

  private struct Change: Encodable {
    var text: String?
    var done: Bool?
  }

  @Test("A removal of nothing is not kept, and keeps no other from being undone")
  func emptyClear() async throws {
    struct Cleared: Decodable {
      let undo: UUID?
      let removed: Int
    }
    let server = try await LiveServer.start(["--engine", "memory"])
    let note = try await server.add("Milk")
    let removal: LiveServer.Removal = try await server.ask("DELETE", "/notes/\(note.id)").decoded()
    for _ in 0..<25 {
      let cleared: Cleared = try await server.ask("DELETE", "/notes?which=done").decoded()
      #expect(cleared.undo == nil && cleared.removed == 0)
    }
    #expect(try await server.ask("POST", "/undo/\(removal.undo)").status == 200)
    #expect(try await server.notes() == [note])
  }

  @Test("Too many tags are refused as such, even if one of them is too long as well")
  func manyTags() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    struct Draft: Encodable {
      let text = "Milk"
      let tags: [String]
    }
    let tags = (0..<21).map { "tag \($0)" } + [String(repeating: "long", count: 20)]
    let answer = try await server.ask("POST", "/notes", json: Draft(tags: tags))
    #expect(answer.status == 422)
    #expect(String(decoding: answer.body, as: UTF8.self).contains("at most 20 tags"))
    // Duplicate tags do not count.
    let allowed = (0..<20).map { "tag \($0)" }
    #expect(try await server.add("Bread", tags: allowed + allowed).tags == allowed)
  }

  @Test(
    "What one server acknowledged is not lost when another clears and undoes", arguments: ["sqlite", "lmdb"])
  func clearsWhatIsStored(_ engine: String) async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", engine, "--directory", directory.path]
    let (one, other) = (try await LiveServer.start(arguments), try await LiveServer.start(arguments))
    let note = try await one.add("Milk")
    for round in 0..<50 {
      let text = "Milk \(round)"
      // Immediately afterwards, possibly before the change has reached the other server.
      let changed = try await other.ask("PATCH", "/notes/\(note.id)", json: ["text": text])
      #expect(changed.status == 200)
      let cleared: LiveServer.Removal = try await one.ask("DELETE", "/notes?which=all").decoded()
      #expect(cleared.removed == 1)
      #expect(try await one.ask("POST", "/undo/\(cleared.undo)").status == 200)
      #expect(try await one.notes().map(\.text) == [text])
    }
  }

  @Test("A removal returns what was acknowledged before it, and nothing that comes after it is acknowledged")
  func removesWhatIsStored() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    for round in 0..<50 {
      let note = try await server.add("Milk")
      let text = "Bread \(round)"
      async let changing = server.ask("PATCH", "/notes/\(note.id)", json: ["text": text])
      let removal: LiveServer.Removal = try await server.ask("DELETE", "/notes/\(note.id)").decoded()
      let change = try await changing
      #expect(try await server.ask("POST", "/undo/\(removal.undo)").status == 200)
      let restored: LiveServer.Note = try await server.ask("GET", "/notes/\(note.id)").decoded()
      #expect(restored.text == (change.status == 200 ? text : "Milk"))
    }
  }

  @Test("A bad request has an error in JSON with its status as the response, and changes nothing")
  func badInput() async throws {
    struct Failure: Decodable {
      struct Details: Decodable {
        let code: String
        let message: String
      }
      let error: Details
    }
    let server = try await LiveServer.start(["--engine", "memory"])
    let note = try await server.add("Milk")
    for bad in BadRequest.all {
      let answer = try await server.ask(bad.method, bad.path, bad.body, headers: bad.headers)
      #expect(answer.status == bad.status, "\(bad.name)")
      #expect(answer.headers["content-type"] == "application/json", "\(bad.name)")
      let failure = try? answer.decoded(Failure.self)
      #expect(failure?.error.message.isEmpty == false, "\(bad.name)")
      if bad.status == 405 { #expect(answer.headers["allow"]?.isEmpty == false, "\(bad.name)") }
    }
    #expect(try await server.notes() == [note])
    #expect(try await server.health().status == "ok")
  }

  @Test("HEAD is as GET without the body")
  func head() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    for (path, status) in [("/", 200), ("/health", 200), ("/nothing", 404), ("/events", 405)] {
      let answer = try await server.ask("HEAD", path)
      #expect(answer.status == status && answer.body.isEmpty, "\(path)")
    }
    // No request remains active. The last one can be active for a short time after its response.
    let number = "http_server_active_requests{http_request_method=\"HEAD\"} "
    var metrics = ""
    for _ in 0..<1_000 where !metrics.contains(number + "0.0\n") {
      metrics = String(decoding: try await server.ask("GET", "/metrics").body, as: UTF8.self)
    }
    #expect(metrics.contains(number + "0.0\n"))
  }

  @Test(
    "The page comes with its files, each once per version, and with a policy that lets no script of a note run"
  )
  func page() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    for (path, type) in [("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css")] {
      let answer = try await server.ask("GET", path)
      #expect(answer.status == 200 && answer.headers["content-type"]?.hasPrefix(type) == true)
      let policy = answer.headers["content-security-policy"] ?? ""
      #expect(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"))
      #expect(!policy.contains("unsafe"))
      #expect(answer.headers["etag"]?.isEmpty == false)
    }
    let metrics = String(decoding: try await server.ask("GET", "/metrics").body, as: UTF8.self)
    #expect(metrics.contains("livenotes_subscribers 0"))
    #expect(metrics.contains("hb_requests{http_route=\"/app.js\""))
  }

  @Test(
    "What was acknowledged is there after the server was killed",
    arguments: ["files", "sqlite", "lmdb", "leveldb"])
  func killed(_ engine: String) async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", engine, "--directory", directory.path]
    var notes: [LiveServer.Note] = []
    for round in 0..<3 {
      let server = try await LiveServer.start(arguments)
      #expect(try await server.notes() == notes)
      for number in 0..<5 { notes.append(try await server.add("\(round) \(number)")) }
      #expect(server.process.end(by: SIGKILL) == -SIGKILL)
    }
    let server = try await LiveServer.start(arguments)
    #expect(try await server.notes() == notes)
  }

  @Test("A server that is asked to stop ends its streams and keeps what was acknowledged")
  func stops() async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", "lmdb", "--directory", directory.path]
    let server = try await LiveServer.start(arguments)
    let readers = try (0..<3).map { _ in try EventReader(server, "/events") }
    let note = try await server.add("Milk")
    for reader in readers { _ = try await reader.events { $0.contains { $0.data.contains("Milk") } } }
    #expect(server.process.end(by: SIGTERM) == 0)
    for reader in readers { await reader.end() }
    #expect(try await LiveServer.start(arguments).notes() == [note])
  }

  @Test("A server does not start on a place that another server has locked")
  func locked() async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", "leveldb", "--directory", directory.path]
    let first = try await LiveServer.start(arguments)
    await #expect(throws: LiveServer.NotStarted.self) { try await LiveServer.start(arguments) }
    #expect(try await first.health().status == "ok")
  }

  @Test("Two servers on one place show the same notes", arguments: ["files", "sqlite", "lmdb"])
  func twoServers(_ engine: String) async throws {
    let directory = try TemporaryDirectory()
    try await TwoServers(["--engine", engine, "--directory", directory.path]).check()
  }

  @Test("Two servers on one PostgreSQL show the same notes", .enabled(if: PostgreSQLCluster.isInstalled))
  func twoServersOnPostgreSQL() async throws {
    let cluster = try await PostgreSQLCluster.start()
    try await TwoServers(["--postgresql", cluster.connection]).check()
    withExtendedLifetime(cluster) {}
  }
}
