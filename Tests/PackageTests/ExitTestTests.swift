import Foundation
import TestFixtures
import Testing

@Suite("Tests that start processes")
struct ExitTestTests {
  @Test(
    "Tests that Swift Testing runs in processes of their own leave the threads of the cooperative pool to others"
  )
  func traits() throws {
    let tests = URL(filePath: #filePath).appending(path: "../..").standardizedFileURL
    let call = "#expect(" + "processExitsWith:"
    let paths = try #require(FileManager.default.enumerator(at: tests, includingPropertiesForKeys: nil))
    var count = 0
    for case let file as URL in paths where file.pathExtension == "swift" {
      let text = try String(contentsOf: file, encoding: .utf8)
      guard file.lastPathComponent != "OwnThreads.swift" else { continue }
      for range in text.ranges(of: call) {
        count += 1
        let before = text[..<range.lowerBound]
        // The test's attribute and what follows, and the first line of the suite's.
        let test = before.ranges(of: "@Test").last.map { before[$0.lowerBound...] } ?? before
        let suite = before.ranges(of: "@Suite").last.map { before[$0.lowerBound...].prefix { $0 != "\n" } }
        let traits = test + (suite ?? "")
        #expect(traits.contains(".ownThreads"), "A test in \(file.path) blocks the pool: \(test)")
      }
    }
    #expect(count > 0)
  }
}
