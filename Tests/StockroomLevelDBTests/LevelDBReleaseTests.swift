import Foundation
import StockroomCore
import StockroomLevelDB
import TestFixtures
import Testing

/// Opening a place whose last engine was dropped without being closed.
@Suite("LevelDB: dropping the last reference")
struct LevelDBReleaseTests {
  let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test("A place that is dropped while removed entries are compacted can be opened at once")
  func droppedDuringCompaction() async throws {
    for round in 0..<3 {
      let engine = try directory.open()
      try await fill(engine, round)
    }
  }

  @MainActor
  @Test("A place that is dropped on the main actor during a compaction can be opened there at once")
  func droppedOnMainActor() async throws {
    for round in 0..<3 {
      let engine = try directory.open()
      try await fill(engine, round)
    }
  }

  /// Leaves work for LevelDB in the background, and one entry.
  private func fill(_ engine: LevelDBStorageEngine, _ round: Int) async throws {
    #expect(try await engine.keyCount() == min(round, 1))
    for number in 0..<4 {
      try await engine.write((0..<100).map { (CacheKey(verbatim: "\(number)/\($0)"), noise(50_000)) })
    }
    try await engine.removeAllData()
    try await engine.write(Data([1]), key: CacheKey(verbatim: "kept"))
  }

  #if os(Linux)
    @Test("Opening waits while another process releases the place after its engine was dropped")
    func openingDuringRelease() async throws {
      try await directory.open().close()
      let place = try FileDescriptor.openDirectory(atPath: directory.database.path)
      let mark = try #require(
        try FileDescriptor.openFile(atPath: directory.database.path + "/STOCKROOM", O_RDONLY))
      try #require(try FileLock.tryAcquire(place.number, path: place.path))
      try #require(try FileLock.tryAcquire(mark.number, path: mark.path))
      let opening = try ThreadWork { [directory] in try directory.open() }
      // Opened here, and by the opening that waits.
      while !opening.isOver, try openDirectories() < 2 { sched_yield() }
      FileLock.release(place.number)
      FileLock.release(mark.number)
      try await opening.value().close()
    }

    /// The number of descriptors of this process that refer to the directory of the database.
    private func openDirectories() throws -> Int {
      let end = "/\(directory.parent.lastPathComponent)/place/Stockroom.leveldb"
      let files = FileManager.default
      return try files.contentsOfDirectory(atPath: "/proc/self/fd").count { number in
        (try? files.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)"))?.hasSuffix(end) ?? false
      }
    }
  #endif
}
