import Foundation
import StockroomCore
import Testing

@Suite struct DirectoryTests {
  @Test("Each place can be extended by a path")
  func appending() {
    typealias Directory = FileManager.Directory
    let pairs: [(Directory, Directory)] = [
      (.defaultStorageDirectory, .defaultStorageDirectory(appendingPath: "a/b")),
      (.documents, .documents(appendingPath: "a/b")),
      (.caches, .caches(appendingPath: "a/b")),
      (.temporary, .temporary(appendingPath: "a/b")),
    ]
    for (place, below) in pairs {
      #expect(below.url.path.hasPrefix(place.url.path))
      #expect(below.url.path.hasSuffix("a/b"))
    }
    #expect(Set(pairs.map(\.0)).count == 4)
  }

  #if os(Linux)
    @Test("The places are those of the XDG base directory specification")
    func xdg() async throws {
      // The environment belongs to the whole process, so another one is asked.
      await #expect(processExitsWith: .success) {
        setenv("XDG_DATA_HOME", "/data", 1)
        setenv("XDG_CACHE_HOME", "relative/is/ignored", 1)
        unsetenv("XDG_DOCUMENTS_DIR")
        setenv("HOME", "/home/somebody", 1)
        precondition(FileManager.Directory.defaultStorageDirectory.url.path == "/data")
        precondition(FileManager.Directory.caches.url.path == "/home/somebody/.cache")
        precondition(FileManager.Directory.documents.url.path == "/home/somebody/Documents")
      }
    }
  #endif
}
