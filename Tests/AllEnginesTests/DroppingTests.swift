#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomEngines
  import Synchronization
  import TestFixtures
  import Testing

  /// Engines released without `close()`.
  @Suite struct DroppingTests {
    private final class Flag: Sendable {
      private let value = Atomic(false)
      var isSet: Bool { value.load(ordering: .relaxed) }
      func set() { value.store(true, ordering: .relaxed) }
    }

    private static let logs = [
      "files": ".stockroom/changes", "sqlite": "data.sqlite3-changes", "lmdb": "changes.log",
    ]

    /// The number of this process's descriptors that refer to the same file.
    private static func openDescriptors(of file: Int32) throws -> Int {
      var wanted = stat()
      try #require(fstat(file, &wanted) == 0)
      return try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count { name in
        var found = stat()
        guard let number = Int32(name), fstat(number, &found) == 0 else { return false }
        return found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino
      }
    }

    @Test(
      "Releasing an engine does not wait for a check of its change feed that waits for a lock (rule C5)",
      .timeLimit(.minutes(60)), arguments: ["files", "sqlite", "lmdb"], [false, true])
    func check(name: String, isOtherOpen: Bool) async throws {
      let directory = try TemporaryDirectory()
      let entry = try EngineCatalog.select([name])[0]
      let other: (any StorageEngine)? = try await isOtherOpen ? entry.open(directory.url, .process) : nil
      var engine: (any StorageEngine)? = try await entry.open(directory.url, .process)
      let changes = try await engine?.changes()
      // Replaces the log of the feed by a copy that is locked through another file description. The feed opens
      // the copy when it detects it.
      let log = directory.url.appending(path: try #require(Self.logs[name])).path(percentEncoded: false)
      try FileManager.default.copyItem(atPath: log, toPath: log + "-locked")
      let file = open(log + "-locked", O_RDWR | O_CLOEXEC)
      try #require(file >= 0)
      defer { close(file) }
      try #require(flock(file, LOCK_EX) == 0)
      try #require(rename(log + "-locked", log) == 0)
      while try Self.openDescriptors(of: file) < 2 { await Task.yield() }

      let isDropped = DispatchSemaphore(value: 0)
      let isHeldUp = Flag()
      let (unlocked, continuation) = AsyncStream<Void>.makeStream()
      DispatchQueue.global().async {
        // Bounded, so that a failing test ends.
        if isDropped.wait(timeout: .now() + 10) == .timedOut { isHeldUp.set() }
        _ = flock(file, LOCK_UN)
        continuation.finish()
      }
      engine = nil
      isDropped.signal()
      for await _ in unlocked {}
      #expect(!isHeldUp.isSet)
      withExtendedLifetime(changes) {}
      try await other?.close()
      // Opens once the released engine has been closed.
      let again = try await entry.open(directory.url, .process)
      #expect(try await again.keyCount() == 0)
      try await again.close()
    }
  }
#endif
