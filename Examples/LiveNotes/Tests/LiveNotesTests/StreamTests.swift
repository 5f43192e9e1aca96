import Foundation
import Testing

@Suite("Streams", .timeLimit(.minutes(60)))
struct StreamTests {
  @Test("A stream begins with a snapshot, and has every change of its panels once, the same for all")
  func changes() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let milk = try await server.add("Milk")
    let readers = try (0..<3).map { _ in try EventReader(server, "/events?panel=notes&panel=favourites") }
    for reader in readers { _ = try await reader.events { $0.contains { $0.name == "beat" } } }
    // Once the marker has arrived, so have all changes from before the snapshots.
    let marker = try await server.add("Everybody is here")
    for reader in readers {
      _ = try await reader.events { $0.contains { $0.data.contains(marker.id.uuidString) } }
    }
    try await server.ask("PATCH", "/notes/\(milk.id)", json: ["favourite": true])
    try await server.ask("DELETE", "/notes/\(milk.id)")
    let bread = try await server.add("Bread")
    var streams: [[ServerEvent]] = []
    for reader in readers {
      streams.append(try await reader.events { $0.contains { $0.data.contains(bread.id.uuidString) } })
    }
    for events in streams {
      #expect(
        events[0].name == "notes" && events[0].data.contains("\"all\":true")
          && events[0].data.contains("Milk"))
      #expect(!events.contains { $0.name == "counter" })
      let changes = events.filter { !$0.id.isEmpty }.drop { !$0.data.contains(marker.id.uuidString) }
        .filter { $0.name == "notes" }
      let numbers = changes.compactMap(\.number)
      #expect(!numbers.isEmpty && numbers == numbers.sorted() && Set(numbers).count == numbers.count)
      let others = streams[0].filter { !$0.id.isEmpty }.drop { !$0.data.contains(marker.id.uuidString) }
        .filter { $0.name == "notes" }
      #expect(changes == others)
    }
  }

  @Test("A stream beyond the limit is refused until another one ends, and other requests are answered")
  func limit() async throws {
    let server = try await LiveServer.start(["--engine", "memory", "--streams", "2"])
    let readers = try (0..<2).map { _ in try EventReader(server, "/events?panel=notes") }
    for reader in readers { _ = try await reader.events { !$0.isEmpty } }
    let refused = try await server.ask("GET", "/events?panel=notes")
    #expect(refused.status == 503 && refused.headers["retry-after"] == "5")
    _ = try await server.add("Milk")
    readers[0].leave()
    // The server detects that the connection is closed when it writes to it.
    while try await server.health().subscribers == 2 { _ = try await server.add("Bread") }
    let next = try EventReader(server, "/events?panel=notes")
    _ = try await next.events { $0.contains { $0.data.contains("Milk") } }
  }

  @Test(
    "A subscriber that reconnects receives what it missed, and nothing twice; from another server, everything"
  )
  func resuming() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let first = try EventReader(server, "/events?panel=notes")
    _ = try await first.events { $0.contains { $0.name == "beat" } }
    let milk = try await server.add("Milk")
    let seen = try #require(
      try await first.events { $0.contains { $0.data.contains(milk.id.uuidString) } }
        .last { $0.data.contains(milk.id.uuidString) }?.id)
    first.leave()
    let bread = try await server.add("Bread")
    for (path, headers) in [
      ("/events?panel=notes", ["Last-Event-ID: \(seen)"]), ("/events?panel=notes&after=\(seen)", []),
    ] {
      let events = try await EventReader(server, path, headers: headers)
        .events { $0.contains { $0.data.contains(bread.id.uuidString) } }
      #expect(!events.contains { $0.data.contains("\"all\"") || $0.data.contains(milk.id.uuidString) })
    }
    for other in ["otherfeed-1", "nonsense", "\(seen)0000", "-", String(repeating: "9", count: 5_000)] {
      let events = try await EventReader(server, "/events?panel=notes", headers: ["Last-Event-ID: \(other)"])
        .events { !$0.isEmpty }
      #expect(events[0].data.contains("\"all\":true") && events[0].data.contains("Milk"))
    }
  }

  @Test("A change of many long notes is sent in short events, of which only the last one has an identifier")
  func largeChange() async throws {
    struct Message: Decodable { let notes: [LiveServer.Note] }
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", "lmdb", "--directory", directory.path]
    let text = String(repeating: "long ", count: 1_900)
    let first = try await LiveServer.start(arguments)
    var notes: [LiveServer.Note] = []
    for number in 0..<40 { notes.append(try await first.add("\(number) \(text)")) }
    #expect(first.process.end(by: SIGTERM) == 0)
    // The first change in the feed of the next server is that all notes have been loaded.
    let second = try await LiveServer.start(arguments)
    let beat = try #require(
      try await EventReader(second, "/events?panel=counter").events { $0.contains { $0.name == "beat" } }
        .first { $0.name == "beat" })
    let feed = try #require(beat.id.split(separator: "-").first)
    let events = try await EventReader(second, "/events?panel=notes&after=\(feed)-0")
      .events { $0.contains { $0.name == "notes" && !$0.id.isEmpty } }
    let change = events.filter { $0.name == "notes" }
    let end = try #require(change.firstIndex { !$0.id.isEmpty })
    let parts = change[...end]
    #expect(parts.allSatisfy { $0.data.utf8.count <= 128 << 10 })
    #expect(parts.map { $0.data.contains("\"all\":true") } == parts.indices.map { $0 == 0 })
    let sent = try parts.flatMap { try JSONDecoder().decode(Message.self, from: Data($0.data.utf8)).notes }
    #expect(sent == notes)
  }

  @Test("A subscriber that does not read delays nobody and is disconnected, and can subscribe again")
  func stalled() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let reader = try EventReader(server, "/events?panel=notes")
    let stalled = try EventReader(server, "/events?panel=notes", isStalled: true)
    _ = try await reader.events { !$0.isEmpty }
    // More than the feed keeps.
    let text = String(repeating: "long ", count: 1_900)
    try await withThrowingTaskGroup { group in
      for task in 0..<8 {
        group.addTask {
          for number in 0..<300 { _ = try await server.add("\(task) \(number) \(text)") }
        }
      }
      try await group.waitForAll()
    }
    let last = try await server.add("The end")
    _ = try await reader.events { $0.contains { $0.data.contains(last.id.uuidString) } }
    let health = try await server.health()
    #expect(health.cutOff == 1)
    #expect(health.subscribers == 1)
    stalled.leave()
    let again = try await EventReader(server, "/events?panel=counter").events { !$0.isEmpty }
    #expect(again[0].data.contains("\"all\":2401"))
  }

  @Test("A client that requests the list and does not read it delays nobody")
  func stalledList() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    // More than fits into the buffers of the connection.
    let text = String(repeating: "long ", count: 1_900)
    for number in 0..<600 { _ = try await server.add("\(number) \(text)") }
    let stalled = try (0..<5).map { _ in try EventReader(server, "/notes", isStalled: true) }
    #expect(try await server.notes().count == 600)
    for reader in stalled { reader.leave() }
    #expect(try await server.notes().count == 600)
  }

  @Test("Many subscribers to many changes end with the same notes, and memory stays bounded")
  func load() async throws {
    let isLong = ProcessInfo.processInfo.environment["LIVENOTES_LOAD"] != nil
    let (subscribers, seconds, rate) = isLong ? (500, 60, 200) : (60, 2, 100)
    let server = try await LiveServer.start(["--engine", "memory"], isPinned: isLong)
    var notes: [LiveServer.Note] = []
    for number in 0..<100 { notes.append(try await server.add("note \(number)")) }
    let readers = try (0..<subscribers).map { _ in try LoadReader(server) }
    let stalled = try EventReader(server, "/events", isStalled: true)
    while try await server.health().subscribers < subscribers + 1 {}

    let start = ContinuousClock.now
    let clients = 4
    // Each client waits for a response before its next request.
    let memory = try await withThrowingTaskGroup { [notes] group in
      for client in 0..<clients {
        group.addTask {
          var memory: [Int] = []
          for number in stride(from: client, to: seconds * rate, by: clients) {
            try await Task.sleep(until: start + .seconds(Double(number) / Double(rate)))
            try await server.ask(
              "PATCH", "/notes/\(notes[number % notes.count].id)", json: ["text": "change \(number)"])
            if number.isMultiple(of: rate) { memory.append(Self.residentMemory(of: server.process.pid)) }
          }
          return memory
        }
      }
      return try await group.reduce([], +)
    }
    let duration = start.duration(to: .now)
    let last = try await server.add("The end")
    for reader in readers { try await reader.waitUntil(last.id.uuidString) }
    let expected = Dictionary(
      uniqueKeysWithValues: try await server.notes().map { ($0.id.uuidString, $0.text) })
    #expect(readers.count { $0.texts != expected } == 0)
    stalled.leave()
    print(
      """
      \(subscribers) subscribers, \(seconds * rate) changes in \(duration); the last one was everywhere \
      \(start.duration(to: .now) - duration) later; resident memory in MiB each second: \
      \(memory.map { $0 >> 20 })
      """)
    #expect(memory.last ?? 0 < 512 << 20)
  }

  /// The resident memory of a process in bytes; 0 where there is no `/proc`.
  private static func residentMemory(of process: pid_t) -> Int {
    let fields =
      (try? String(contentsOfFile: "/proc/\(process)/statm", encoding: .utf8))?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
  }
}
