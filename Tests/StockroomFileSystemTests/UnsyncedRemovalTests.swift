#if os(Linux)
  import Foundation
  import Glibc
  import StockroomCore
  import StockroomFileSystem
  import TestFixtures
  import Testing

  @Suite("Files: removals of keys that another engine has removed without a sync")
  struct UnsyncedRemovalTests {
    /// Counts how often a directory is opened, which a sync of it needs.
    private final class Openings {
      private let watch = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))

      init(of directory: URL) throws {
        // Closing counts as another event, without which two openings would be reported as one.
        let id = inotify_add_watch(
          watch, directory.path(percentEncoded: false), UInt32(IN_OPEN | IN_CLOSE_NOWRITE))
        try #require(id >= 0)
      }

      deinit { close(watch) }

      /// The number since the last call.
      func takeCount() -> Int {
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let end = max(0, read(watch, &bytes, bytes.count))
        var (start, openings) = (0, 0)
        while start < end {
          let (mask, nameLength) = bytes.withUnsafeBytes {
            (
              $0.loadUnaligned(fromByteOffset: start + 4, as: UInt32.self),
              $0.loadUnaligned(fromByteOffset: start + 12, as: UInt32.self)
            )
          }
          if nameLength == 0, mask & UInt32(IN_OPEN) != 0 { openings += 1 }
          start += 16 + Int(nameLength)
        }
        return openings
      }
    }

    private static let beginning = String(repeating: "k", count: 300)
    private static let (kept, removed) = (
      CacheKey(verbatim: beginning + "kept"), CacheKey(verbatim: beginning + "removed")
    )

    @Test("At full, the directory of a long key that is absent is synced", arguments: [false, true])
    func longKey(isBatch: Bool) async throws {
      let place = try TemporaryDirectory()
      let (unsynced, synced) = (try place.open(.process), try place.open(.full))
      try await synced.write([(Self.kept, data("1")), (Self.removed, data("2"))])
      let directory = try #require(try place.visibleFiles().first { $0.hasSuffix(".more") })
      let openings = try Openings(of: place.file(directory))
      try await unsynced.remove(key: Self.removed)
      var counts: [Int] = []
      for engine in [unsynced, synced] {
        _ = openings.takeCount()
        try await engine.remove(keys: isBatch ? [Self.removed, "absent"] : [Self.removed])
        counts.append(openings.takeCount())
      }
      #expect(counts[1] > counts[0])
      for engine in [unsynced, synced] { try await engine.close() }
    }
  }
#endif
