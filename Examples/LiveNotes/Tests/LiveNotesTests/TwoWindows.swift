/// Two windows of one browser.
struct TwoWindows {
  let browser: Browser
  let pages: [Page]

  static let isLive = "document.getElementById('connection')?.dataset.state === 'live'"

  init(_ first: LiveServer, _ second: LiveServer? = nil) async throws {
    browser = try Browser()
    pages = [try await browser.openPage(of: first), try await browser.openPage(of: second ?? first)]
    for page in pages { try await page.wait(Self.isLive) }
  }

  static func hasNote(_ text: String) -> String {
    "[...document.querySelectorAll('#list .text')].some(text => text.textContent === \(Page.literal(text)))"
  }

  /// Adds a note with the form. Returns the time until the other window shows it, in milliseconds.
  func add(_ text: String, in page: Int, tags: String = "") async throws -> Double {
    async let seen = pages[1 - page].wait(Self.hasNote(text))
    let began: Double = try await pages[page].evaluate(
      """
      document.getElementById('text').value = \(Page.literal(text));
      document.getElementById('tags').value = \(Page.literal(tags));
      const began = Date.now();
      document.getElementById('add').requestSubmit();
      began
      """.inBlock)
    try await pages[page].wait(Self.hasNote(text))
    return try await seen - began
  }

  /// Clicks a button of a row. Returns the time until the condition holds in the other window, in milliseconds.
  func press(_ action: String, of text: String, in page: Int, until condition: String) async throws -> Double
  {
    async let seen = pages[1 - page].wait(condition)
    let began: Double = try await pages[page].evaluate(
      """
      const row = [...document.querySelectorAll('#list li')].find(row => row.note.text === \(Page.literal(text)));
      const began = Date.now();
      row.querySelector('[data-action=\(action)]').click();
      began
      """.inBlock)
    return try await seen - began
  }
}

extension String {
  /// The statements as an expression with the value of the last line.
  fileprivate var inBlock: String {
    var lines = split(separator: "\n").map(String.init)
    let last = lines.removeLast()
    return "(() => { \(lines.joined(separator: "\n")) return \(last); })()"
  }
}
