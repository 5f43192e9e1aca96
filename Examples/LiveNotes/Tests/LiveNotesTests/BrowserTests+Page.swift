import Foundation
import Testing

/// Tests of the page itself: its keyboard control, editing, escaping, scrolling and appearance.
extension BrowserTests {
  private static func rowNamed(_ text: String) -> String {
    "[...document.querySelectorAll('#list li')].find(row => row.note.text === \(Page.literal(text)))"
  }

  @Test("Everything can be done by keyboard alone")
  func keyboard() async throws {
    let windows = try await TwoWindows(try await LiveServer.start(["--engine", "memory"]))
    let (page, other) = (windows.pages[0], windows.pages[1])
    func otherSees(_ condition: String) async throws { try await other.wait(condition) }

    for text in ["first", "second", "third"] {
      if text == "first" { try await page.press("n") }
      try await page.type(text)
      if text == "second" {
        try await page.press("Tab")
        try await page.type("home, later")
      }
      try await page.press("Enter")
      try await otherSees(TwoWindows.hasNote(text))
      try await page.wait("document.activeElement.id === 'text' && document.activeElement.value === ''")
    }
    try await otherSees(Self.row("second", "row.note.tags.join() === 'home,later'"))

    // Escape moves the focus from the form to the list.
    try await page.press("Escape")
    try await page.wait("document.activeElement.matches('#list li')")
    try await page.press("Home", "ArrowDown", " ")
    try await otherSees(Self.row("second", "row.note.done"))
    try await page.press("f")
    try await otherSees("document.querySelectorAll('#favourite-list li').length === 1")
    try await page.press("Enter")
    try await page.wait("document.activeElement.matches('#list li input')")
    try await page.type("changed")
    try await page.press("Enter")
    try await otherSees(TwoWindows.hasNote("changed"))
    try await page.wait("document.activeElement.matches('#list li')")

    // Escape discards the change.
    try await page.press("Enter")
    try await page.wait("document.activeElement.matches('#list li input')")
    try await page.type("never")
    try await page.press("Escape")
    try await page.wait("document.activeElement.matches('#list li')")

    // The buttons of a row.
    try await page.press("ArrowRight", "Enter")
    try await otherSees(Self.row("changed", "!row.note.done"))
    try await page.press("ArrowLeft", "Delete")
    try await otherSees("!\(TwoWindows.hasNote("changed"))")
    try await page.wait("document.activeElement.matches('#list li')")
    try await page.wait("document.querySelector('#messages button')")
    try await page.press("u")
    try await otherSees(TwoWindows.hasNote("changed"))

    try await page.press("/")
    try await page.type("ird")
    try await page.wait("document.querySelectorAll('#list li').length === 1")
    try await page.press("Escape")
    try await page.wait("document.activeElement.matches('#list li')")
    let texts: [String] = try await other.evaluate(
      "[...document.querySelectorAll('#list .text')].map(text => text.textContent)")
    #expect(texts == ["first", "changed", "third"])

    // Every control has an accessible name.
    let nameless: [String] = try await page.evaluate(
      """
      [...document.querySelectorAll('button, input, a, li[tabindex]')].filter(element =>
        !(element.ariaLabel || element.textContent.trim() || element.labels?.[0]?.textContent.trim()))
        .map(element => element.outerHTML)
      """)
    #expect(nameless == [])
  }

  @Test("Editing a note keeps what others change in it, and keeps the text if others delete it")
  func editing() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let windows = try await TwoWindows(server)
    for text in ["first", "second"] { _ = try await windows.add(text, in: 0) }
    let note = try await server.notes()[1]
    let page = windows.pages[0]
    let inEditor = "document.activeElement.matches('#list li input')"
    func edit(_ text: String) async throws {
      let _: Bool = try await page.evaluate(
        "(\(Self.rowNamed(text)).querySelector('[data-action=edit]').click(), true)")
      try await page.wait(inEditor)
    }

    try await edit("second")
    try await page.press("Tab")
    try await page.type("mine")
    try await server.ask("PATCH", "/notes/\(note.id)", json: ["text": "theirs"])
    try await page.wait("\(Self.rowNamed("theirs")) !== undefined")
    try await page.press("Enter")
    try await page.wait("document.activeElement.matches('#list li')")
    #expect(try await server.notes()[1].text == "theirs")
    #expect(try await server.notes()[1].tags == ["mine"])

    try await edit("theirs")
    try await page.type("not ")
    try await server.ask("DELETE", "/notes/\(note.id)")
    try await page.wait("document.getElementById('counts').textContent.startsWith('1 note,')")
    try await page.type("lost")
    let text: String = try await page.evaluate("document.activeElement.value")
    #expect(text == "not lost")
    // Saving fails, and the page shows an error.
    try await page.press("Enter")
    try await page.wait("document.querySelector('#messages .bad') !== null && \(inEditor)")
    try await page.press("Escape")
    try await page.wait("document.querySelectorAll('#list li').length === 1")
    let left = try await server.notes()
    #expect(left.map(\.text) == ["first"] && !left[0].done && !left[0].favourite)
  }

  @Test("Text of a note is text, whatever it is")
  func hostileText() async throws {
    let windows = try await TwoWindows(try await LiveServer.start(["--engine", "memory"]))
    let texts = [
      "<script>document.title = 'gone'</script>", "<img src=x onerror=\"document.title = 'gone'\">",
      "\"></li><li onclick=x>", "javascript:document.title='gone'", "data: x\u{2028}event: counter",
      "👩‍👩‍👧‍👦 \u{202e}drawkcab",
      "id: 1\\n\\nevent: notes",
    ]
    for (number, text) in texts.enumerated() { _ = try await windows.add(text, in: number % 2, tags: text) }
    for page in windows.pages {
      let title: String = try await page.evaluate("document.title")
      #expect(title == "LiveNotes")
      let foreign: Int = try await page.evaluate(
        "document.querySelectorAll('#list script, #list img').length")
      #expect(foreign == 0)
    }
  }

  @Test("Of 10,000 notes only those that can be seen are in the document, wherever one scrolls")
  func manyNotes() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    try await withThrowingTaskGroup { group in
      for task in 0..<8 {
        group.addTask { for number in 0..<1_250 { _ = try await server.add("note \(task) \(number)") } }
      }
      try await group.waitForAll()
    }
    let browser = try Browser()
    let page = try await browser.openPage(of: server)
    try await page.wait("document.getElementById('counts').textContent.startsWith('10000 ')")
    try await page.wait("document.querySelectorAll('#list li').length > 0")
    struct Frames: Decodable {
      let most: Int
      let longest: Double
      let median: Double
    }
    let frames: Frames = try await page.evaluate(
      """
      new Promise(done => {
        const box = document.getElementById('list');
        const times = [];
        let most = 0, before = performance.now(), step = 0;
        requestAnimationFrame(function frame(now) {
          times.push(now - before);
          before = now;
          most = Math.max(most, document.querySelectorAll('#list li').length);
          box.scrollTop = step / 120 * box.scrollHeight;
          if (step++ < 120) return requestAnimationFrame(frame);
          times.sort((a, b) => a - b);
          done({ most, longest: times.at(-1), median: times[times.length >> 1] });
        });
      })
      """)
    #expect(frames.most < 60)
    try await page.wait(
      "[...document.querySelectorAll('#list li')].some(row => row.ariaPosInSet === '10000')")
    print(
      "Scrolling 10,000 notes: a frame every \(frames.median) ms at the median, \(frames.longest) ms at most")
    // A change of a note that is not in the document.
    let first = try await server.notes()[0]
    try await server.ask("PATCH", "/notes/\(first.id)", json: ["text": "found"])
    let _: Bool = try await page.evaluate(
      "(document.getElementById('search').value = 'found', document.getElementById('search').dispatchEvent(new Event('input')), true)"
    )
    try await page.wait("document.querySelectorAll('#list li').length === 1")
  }

  @Test("The page is drawn light and dark, wide and narrow")
  func screenshots() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    for (text, tags, change) in Self.samples {
      let note = try await server.add(text, tags: tags)
      if !change.isEmpty { try await server.ask("PATCH", "/notes/\(note.id)", json: change) }
    }
    let browser = try Browser()
    let page = try await browser.openPage(of: server)
    try await page.wait("document.querySelectorAll('#favourite-list li').length === 2")
    var images: [Data] = []
    for (size, width, height) in [("wide", 1_200, 760), ("narrow", 390, 800)] {
      for scheme in ["light", "dark"] {
        let image = try await page.screenshot(width: width, height: height, scheme: scheme)
        #expect(image.starts(with: [0x89, 0x50, 0x4e, 0x47]))
        // Nothing extends beyond the width of the window.
        let overflow: Int = try await page.evaluate(
          "document.documentElement.scrollWidth - document.documentElement.clientWidth")
        #expect(overflow <= 0)
        images.append(image)
        if let folder = ProcessInfo.processInfo.environment["LIVENOTES_SCREENSHOTS"] {
          try image.write(to: URL(filePath: folder).appending(path: "\(size)-\(scheme).png"))
        }
      }
    }
    #expect(Set(images).count == 4)
  }

  private static let samples: [(String, [String], [String: Bool])] = [
    ("Ask the library for the second volume", ["reading"], [:]),
    ("Milk, bread, and something sweet", ["home", "shopping"], ["done": true]),
    ("Call Ada about the concert on Friday", ["friends"], ["favourite": true]),
    ("Renew the train ticket before the prices go up", ["travel"], [:]),
    ("Water the lemon tree, it looks thirsty again", ["home"], ["favourite": true]),
    ("Write down how the new heating is set", ["home", "later"], ["done": true]),
    ("Three ideas for the garden party", ["friends", "later"], [:]),
  ]
}
