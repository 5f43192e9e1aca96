import Foundation
import StockroomCore
import Testing

@Suite struct BackupDirectoryTests {
  @Test("A backup whose name could not be synced is removed")
  func unsyncedName() async throws {
    let parent = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: parent) }
    let target = FileManager.Directory(url: parent.appending(path: "backup"))
    let error = await #expect(throws: StorageError.self) {
      try await BackupDirectory.make(
        at: target, synchronizeName: { _, _ in throw StorageError(.io, "In the test.") }
      ) { unfinished in
        try Data("1".utf8).write(to: unfinished.url.appending(path: "file"))
      }
    }
    #expect(error?.message == "In the test.")
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent.path) == [])
  }
}
