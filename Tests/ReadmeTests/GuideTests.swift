#if os(Linux)
  import Foundation
  import TestFixtures
  import Testing

  /// Runs code of the guides that the other tests only compile.
  @Suite struct GuideTests {
    @Test("The Editor of the guide keeps all changes of tasks that append at the same time", .ownThreads)
    func editor() async {
      await #expect(processExitsWith: .success) {
        let directory = FileManager.default.temporaryDirectory.appending(
          path: "stockroom-\(UUID().uuidString)")
        setenv("XDG_DATA_HOME", directory.path(percentEncoded: false), 1)
        defer { try? FileManager.default.removeItem(at: directory) }
        let digits = "0123456789"
        try await withThrowingTaskGroup(of: Void.self) { group in
          for digit in digits { group.addTask { try await Editor.shared.append(String(digit)) } }
          try await group.waitForAll()
        }
        let draft = await Editor.shared.draft
        #expect(draft.sorted() == Array(digits))
      }
    }
  }
#endif
