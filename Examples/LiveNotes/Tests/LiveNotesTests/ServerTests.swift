import Foundation
import Testing

/// What somebody sends who means no good, or has made a mistake, and what comes back.
struct BadRequest: Sendable, CustomTestStringConvertible {
  let name: String
  let method: String
  let path: String
  var body: Data?
  var headers: [String: String] = [:]
  let status: Int
  var testDescription: String { name }

  private static func text(_ length: Int) -> Data {
    Data("{\"text\":\"\(String(repeating: "x", count: length))\"}".utf8)
  }
  private static let unknown = "/notes/\(UUID().uuidString)"
  private static let note = Data("{\"text\":\"Milk\"}".utf8)
  private static func json(_ text: String) -> Data { Data(text.utf8) }

  static let all: [BadRequest] = [
    .init(name: "half an object", method: "POST", path: "/notes", body: json("{\"te"), status: 400),
    .init(name: "no body", method: "POST", path: "/notes", body: Data(), status: 400),
    .init(
      name: "a number for a text", method: "POST", path: "/notes", body: json("{\"text\":7}"), status: 400),
    .init(name: "no UTF-8", method: "POST", path: "/notes", body: Data([0x7b, 0xff, 0xfe]), status: 400),
    .init(
      name: "arrays in arrays", method: "POST", path: "/notes",
      body: json(String(repeating: "[", count: 60_000)), status: 400),
    .init(name: "blanks", method: "POST", path: "/notes", body: json("{\"text\":\" \\n \"}"), status: 422),
    .init(name: "a long text", method: "POST", path: "/notes", body: text(10_001), status: 422),
    .init(name: "a long body", method: "POST", path: "/notes", body: text(70_000), status: 413),
    .init(
      name: "100 megabytes", method: "POST", path: "/notes", body: Data(repeating: 0x20, count: 100 << 20),
      status: 413),
    .init(
      name: "many tags", method: "POST", path: "/notes",
      body: json("{\"text\":\"x\",\"tags\":[\((0..<21).map { "\"\($0)\"" }.joined(separator: ","))]}"),
      status: 422),
    .init(
      name: "a form", method: "POST", path: "/notes", body: json("text=Milk"),
      headers: ["Content-Type": "application/x-www-form-urlencoded"], status: 415),
    .init(name: "an unknown note, read", method: "GET", path: unknown, status: 404),
    .init(
      name: "an unknown note, changed", method: "PATCH", path: unknown, body: json("{\"done\":true}"),
      status: 404),
    .init(name: "an unknown note, removed", method: "DELETE", path: unknown, status: 404),
    .init(name: "no identifier", method: "GET", path: "/notes/..%2f..%2fetc", status: 404),
    .init(name: "an unknown undo", method: "POST", path: "/undo/\(UUID().uuidString)", status: 410),
    .init(name: "an unknown path", method: "GET", path: "/passwd", status: 404),
    .init(name: "a path upwards", method: "GET", path: "/..%2f..%2fPackage.swift", status: 404),
    .init(name: "a wrong method", method: "PUT", path: "/notes", body: note, status: 405),
    .init(name: "a wrong method of a note", method: "POST", path: unknown, body: note, status: 405),
    .init(name: "a wrong method of the page", method: "DELETE", path: "/", status: 405),
    .init(name: "clearing what", method: "DELETE", path: "/notes", status: 400),
    .init(name: "an unknown panel", method: "GET", path: "/events?panel=other", status: 400),
    .init(
      name: "a foreign origin", method: "DELETE", path: "/notes?which=all",
      headers: ["Origin": "http://evil.example"], status: 403),
    .init(
      name: "no origin that has a name", method: "DELETE", path: "/notes?which=all",
      headers: ["Origin": "null"],
      status: 403),
    .init(
      name: "a foreign origin that reads", method: "GET", path: "/events",
      headers: ["Origin": "http://evil.example"], status: 403),
    .init(
      name: "a foreign site", method: "GET", path: "/notes", headers: ["Sec-Fetch-Site": "cross-site"],
      status: 403),
    .init(
      name: "a foreign name for this server", method: "GET", path: "/notes",
      headers: ["Host": "evil.example"],
      status: 421),
  ]
}

@Suite("The server", .timeLimit(.minutes(10)))
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

  @Test("A draft that is sent twice makes one note, whatever has become of it meanwhile")
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

  @Test("The tags of a note are counted before the rest of them is looked at")
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
    // The same one again is no other tag.
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
      // At once, before it is seen there.
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

  @Test("What is wrong is answered by the right status as JSON, and nothing is lost")
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
    // None of them is under way for ever. The last may be for a moment after its answer.
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

  @Test("A place that another server has for itself is one clear line, and no server")
  func locked() async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", "leveldb", "--directory", directory.path]
    let first = try await LiveServer.start(arguments)
    await #expect(throws: LiveServer.NotStarted.self) { try await LiveServer.start(arguments) }
    #expect(try await first.health().status == "ok")
  }

  @Test("Two servers on one place show one truth", arguments: ["files", "sqlite", "lmdb"])
  func twoServers(_ engine: String) async throws {
    let directory = try TemporaryDirectory()
    try await TwoServers(["--engine", engine, "--directory", directory.path]).check()
  }

  @Test("Two servers on one PostgreSQL show one truth", .enabled(if: PostgreSQLCluster.isInstalled))
  func twoServersOnPostgreSQL() async throws {
    let cluster = try await PostgreSQLCluster.start()
    try await TwoServers(["--postgresql", cluster.connection]).check()
    withExtendedLifetime(cluster) {}
  }
}

/// Two servers on one place.
struct TwoServers {
  let servers: [LiveServer]

  init(_ arguments: [String]) async throws {
    servers = [try await LiveServer.start(arguments), try await LiveServer.start(arguments)]
  }

  /// What either does, the streams of both say, and in the end both have the same.
  func check() async throws {
    let readers = try servers.map { try EventReader($0, "/events?panel=notes") }
    for reader in readers { _ = try await reader.events { !$0.isEmpty } }
    for number in 0..<6 {
      let note = try await servers[number % 2].add("note \(number)")
      for reader in readers {
        _ = try await reader.events { $0.contains { $0.data.contains(note.id.uuidString) } }
      }
    }
    let notes = try await servers[0].notes()
    try await withThrowingTaskGroup { group in
      for server in servers {
        group.addTask {
          for note in notes {
            let answer = try await server.ask("PATCH", "/notes/\(note.id)", json: ["done": true])
            #expect(answer.status == 200)
          }
        }
        group.addTask {
          for note in notes {
            let answer = try await server.ask("PATCH", "/notes/\(note.id)", json: ["favourite": true])
            #expect(answer.status == 200)
          }
        }
      }
      try await group.waitForAll()
    }
    try await servers[1].ask("DELETE", "/notes/\(notes[0].id)")
    let last = try await servers[0].add("last")
    for reader in readers {
      _ = try await reader.events { events in
        events.contains { $0.data.contains(last.id.uuidString) }
          && events.contains { event in
            event.data.contains("\"removed\":[\"\(notes[0].id)\"]")
              || event.data.contains("\"all\":true") && event.data.contains(last.id.uuidString)
                && !event.data.contains(notes[0].id.uuidString)
          }
      }
    }
    let ends = [try await servers[0].notes(), try await servers[1].notes()]
    #expect(ends[0] == ends[1])
    #expect(ends[0].count == 6)
    #expect(ends[0].dropLast().allSatisfy { $0.done && $0.favourite })
  }
}
