import Foundation
import Testing

/// Two servers on one directory or database.
struct TwoServers {
  let servers: [LiveServer]

  init(_ arguments: [String]) async throws {
    servers = [try await LiveServer.start(arguments), try await LiveServer.start(arguments)]
  }

  /// Expects that the streams of both servers report the changes by either, and that their notes are equal at the end.
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
