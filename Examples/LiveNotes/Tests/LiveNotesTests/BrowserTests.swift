import Foundation
import Testing

@Suite("In a browser", .enabled(if: Browser.isInstalled), .serialized, .timeLimit(.minutes(60)))
struct BrowserTests {
  static func row(_ text: String, _ condition: String) -> String {
    "[...document.querySelectorAll('#list li')].some(row => row.note.text === \(Page.literal(text)) && \(condition))"
  }

  @Test("Each action in one window is in the other at once")
  func twoWindows() async throws {
    let windows = try await TwoWindows(try await LiveServer.start(["--engine", "memory"]))
    var times: [Double] = []
    for round in 0..<5 {
      let page = round % 2
      let text = "note \(round)"
      times.append(try await windows.add(text, in: page, tags: "home, later"))
      times.append(
        try await windows.press("done", of: text, in: 1 - page, until: Self.row(text, "row.note.done")))
      times.append(
        try await windows.press(
          "favourite", of: text, in: page,
          until:
            "[...document.querySelectorAll('#favourite-list .text')].some(t => t.textContent === '\(text)')"))
      times.append(
        try await windows.press("remove", of: text, in: 1 - page, until: "!\(TwoWindows.hasNote(text))"))
    }
    times.sort()
    print("From one window to the other: median \(times[times.count / 2]) ms, most \(times.last ?? 0) ms")
    for page in windows.pages {
      try await page.wait("document.getElementById('counts').textContent === '0 notes, 0 done, 0 ★'")
    }
  }

  @Test("Clearing removes what is done, or everything, and is undone")
  func clearing() async throws {
    let windows = try await TwoWindows(try await LiveServer.start(["--engine", "memory"]))
    for number in 0..<4 { _ = try await windows.add("note \(number)", in: 0) }
    _ = try await windows.press("done", of: "note 1", in: 0, until: Self.row("note 1", "row.note.done"))
    for (button, left) in [("clear-done", 3), ("clear-all", 0)] {
      let _: Bool = try await windows.pages[0].evaluate(
        "(document.getElementById('\(button)').click(), true)")
      for page in windows.pages {
        try await page.wait("document.querySelectorAll('#list li').length === \(left)")
      }
      try await windows.pages[0].wait("document.querySelector('#messages button')")
      let _: Bool = try await windows.pages[0].evaluate(
        "(document.querySelector('#messages button').click(), true)")
      for page in windows.pages { try await page.wait("document.querySelectorAll('#list li').length === 4") }
    }
    let texts: [String] = try await windows.pages[1].evaluate(
      "[...document.querySelectorAll('#list .text')].map(text => text.textContent)")
    #expect(texts == (0..<4).map { "note \($0)" })
  }

  @Test(
    "A page that is loaded again, and one whose server is killed and comes back, show what was acknowledged")
  func serverKilled() async throws {
    let directory = try TemporaryDirectory()
    let arguments = ["--engine", "sqlite", "--directory", directory.path]
    var server = try await LiveServer.start(arguments)
    let port = server.port
    let windows = try await TwoWindows(server)
    _ = try await windows.add("before", in: 0)
    try await windows.pages[1].reload()
    try await windows.pages[1].wait("\(TwoWindows.isLive) && \(TwoWindows.hasNote("before"))")

    server.process.end(by: SIGKILL)
    for page in windows.pages { try await page.wait("!(\(TwoWindows.isLive))") }
    // If saving fails, the text stays in the form, and the page shows an error.
    let _: Bool = try await windows.pages[0].evaluate(
      "(document.getElementById('text').value = 'lost?', document.getElementById('add').requestSubmit(), true)"
    )
    try await windows.pages[0].wait("document.querySelector('#messages .bad') !== null")
    let text: String = try await windows.pages[0].evaluate("document.getElementById('text').value")
    #expect(text == "lost?")

    server = try await LiveServer.start(arguments, port: port)
    for page in windows.pages {
      try await page.wait("\(TwoWindows.isLive) && \(TwoWindows.hasNote("before"))")
    }
    _ = try await windows.add("after", in: 1)
    #expect(try await server.notes().map(\.text) == ["before", "after"])
  }

  @Test("Windows of two servers on one database show the same")
  func twoServers() async throws {
    let directory = try TemporaryDirectory()
    try await Self.checkTwoServers(["--engine", "sqlite", "--directory", directory.path])
  }

  @Test("Windows of two servers on one PostgreSQL show the same", .enabled(if: PostgreSQLCluster.isInstalled))
  func twoServersOnPostgreSQL() async throws {
    let cluster = try await PostgreSQLCluster.start()
    try await Self.checkTwoServers(["--postgresql", cluster.connection])
    withExtendedLifetime(cluster) {}
  }

  private static func checkTwoServers(_ arguments: [String]) async throws {
    let servers = [try await LiveServer.start(arguments), try await LiveServer.start(arguments)]
    let windows = try await TwoWindows(servers[0], servers[1])
    var times: [Double] = []
    for number in 0..<6 {
      times.append(try await windows.add("note \(number)", in: number % 2))
      times.append(
        try await windows.press(
          "done", of: "note \(number)", in: 1 - number % 2, until: row("note \(number)", "row.note.done")))
    }
    times.sort()
    print(
      "From a window of one server to one of another: median \(times[times.count / 2]) ms, most \(times.last ?? 0) ms"
    )
    #expect(try await servers[0].notes() == servers[1].notes())
  }

  @Test("A window that is offline for five seconds says so, and catches up by itself")
  func offline() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let windows = try await TwoWindows(server)
    _ = try await windows.add("before", in: 0)
    let page = windows.pages[1]
    try await page.setOffline(true)
    try await page.wait("document.getElementById('connection').dataset.state === 'offline'")
    let meanwhile = try await server.add("meanwhile")
    try await windows.pages[0].wait(TwoWindows.hasNote("meanwhile"))
    try await Task.sleep(for: .seconds(5))
    let isThere: Bool = try await page.evaluate(TwoWindows.hasNote("meanwhile"))
    #expect(!isThere)
    try await page.setOffline(false)
    try await page.wait("\(TwoWindows.isLive) && \(TwoWindows.hasNote(meanwhile.text))")
    _ = try await windows.add("after", in: 1)
  }
}
