import Foundation
import Testing

@Suite("Lost answers in a browser", .enabled(if: Browser.isInstalled), .timeLimit(.minutes(60)))
struct LostAnswerTests {
  @Test(
    "A note that is sent again because its answer was lost is one note, also on a page from another machine")
  func sentAgain() async throws {
    let server = try await LiveServer.start(["--engine", "memory"])
    let browser = try Browser()
    let page = try await browser.openPage(of: server)
    try await page.wait(TwoWindows.isLive)
    // `crypto.randomUUID` is missing in pages that were loaded by HTTP from another machine.
    let isSent: Bool = try await page.evaluate(
      """
      (() => {
        Object.defineProperty(crypto, 'randomUUID', { value: undefined });
        const real = window.fetch;
        window.fetch = async (...request) => {
          window.fetch = real;
          await real(...request);
          throw new TypeError('The answer is lost.');
        };
        document.getElementById('text').value = 'Milk';
        document.getElementById('add').requestSubmit();
        return true;
      })()
      """)
    #expect(isSent)
    try await page.wait("document.querySelector('#messages .bad')")
    let isSentAgain: Bool = try await page.evaluate("(document.getElementById('add').requestSubmit(), true)")
    #expect(isSentAgain)
    try await page.wait("document.getElementById('text').value === ''")
    #expect(try await server.notes().map(\.text) == ["Milk"])
  }
}
