#if os(Linux)
  import Foundation
  import Glibc
  import StockroomCore
  import TestFixtures
  import Testing

  @testable import StockroomFileSystem

  /// A directory such as `/tmp`, in which everybody may create files, and only their owners remove them.
  @Suite("Files: a sticky directory with a file of another user")
  struct StickyDirectoryTests {
    let place: TemporaryDirectory

    init() throws { place = try TemporaryDirectory() }

    @Test(
      "Calls that would remove the file throw .permissionDenied, and remove no other file either",
      .ownThreads,
      .enabled(if: geteuid() == 0, "only root can give a file to another user"))
    func removals() async throws {
      // In a separate process, because it changes its user.
      await #expect(processExitsWith: .success) { [url = place.url as URL] in
        let (root, name) = (url.path(percentEncoded: false), "theirs.entry")
        let theirs = url.appending(path: name).path
        try #require(chmod(url.deletingLastPathComponent().path, 0o755) == 0)
        try #require(chmod(root, 0o1777) == 0)
        try #require(seteuid(65_534) == 0)
        let engine = try DiskStorageEngine(directory: FileManager.Directory(url: url))
        for key in ["own", "theirs"] as [CacheKey] { try await engine.write(data("1"), key: key) }
        try #require(seteuid(0) == 0)
        try #require(chown(theirs, 1, 1) == 0 && chmod(theirs, 0o666) == 0)
        try #require(seteuid(65_534) == 0)

        await expectError(.permissionDenied, naming: name) { try await engine.remove(key: "theirs") }
        await expectError(.permissionDenied, naming: name) {
          try await engine.remove(keys: ["own", "theirs"])
        }
        await expectError(.permissionDenied, naming: name) { try await engine.removeAllData() }
        #expect(try await engine.readAllEntries().map(\.key) == ["own", "theirs"])

        // On a full disk, removals cannot be undone, so permissions are checked first.
        let directory = EntryDirectory(
          root: try FileDescriptor.openDirectory(atPath: root), permissions: .owner)
        try directory.checkRemovable(FileName("own"))
        let error = #expect(throws: StorageError.self) { try directory.checkRemovable(FileName("theirs")) }
        #expect(error?.code == .permissionDenied)
        try await engine.close()
      }
    }
  }
#endif
