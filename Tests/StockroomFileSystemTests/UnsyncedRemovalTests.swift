#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomFileSystem
  import TestFixtures
  import Testing

  @Suite("Files: removals of keys that another engine has removed without a sync")
  struct UnsyncedRemovalTests {
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
      let openings = try DirectoryOpenings(of: place.file(directory))
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
