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
    var files = 0
    for case let file as URL in paths where file.pathExtension == "swift" {
      let text = try String(contentsOf: file, encoding: .utf8)
      guard text.contains(call), file.lastPathComponent != "OwnThreads.swift" else { continue }
      files += 1
      #expect(text.contains(".ownThreads"), "A test in \(file.path) blocks the cooperative pool.")
    }
    #expect(files > 0)
  }
}
