import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

@Suite struct LMDBGrowthTests {
  @Test("The map grows while readers read continuously")
  func underReaders() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(0), key: key(0))
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<8 {
        group.addTask {
          while try await !engine.keyExists(CacheKey(verbatim: "end")) {
            #expect(try await engine.read(key: key(0)) == value(0))
            let keys = try await engine.allKeys()
            #expect(try await engine.readDataAndKeys(keys: keys).count == keys.count)
            await Task.yield()
          }
        }
      }
      for number in 0..<200 {
        try await engine.write(value(number, count: 100_000), key: key(number + 1))
      }
      try await engine.write(Data(), key: CacheKey(verbatim: "end"))
      try await group.waitForAll()
    }
    #expect(try await engine.keyCount() == 202)
  }

  @Test("A bulk read returns one snapshot while the map grows")
  func duringReadAll() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<1000).map { (key($0), value(0, count: 1000)) })
    async let readings = withThrowingTaskGroup(of: Set<Data>.self) { group in
      for _ in 0..<40 { group.addTask { Set(try await engine.readAllData()) } }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    for round in 1...20 {
      try await engine.write((0..<1000).map { (key($0), value(round, count: 1000 + 500 * round)) })
    }
    for reading in try await readings { #expect(reading.count == 1) }
  }

  @Test("A batch much larger than the map is committed")
  func largeBatch() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<100_000).map { (key($0), value($0, count: 300)) })
    #expect(try await engine.keyCount() == 100_000)
    #expect(try await engine.read(key: key(99_999)) == value(99_999, count: 300))
  }

  #if os(Linux)
    @Test(
      "Processes that write one after another do not lengthen a database that another process has open",
      .ownThreads)
    func severalProcesses() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(0), key: key(0))
      let before = try size(of: place)
      for _ in 0..<3 {
        await #expect(processExitsWith: .success) { [url = place.url as URL] in
          let other = try LMDBStorageEngine(directory: FileManager.Directory(url: url))
          try await other.write(value(1), key: key(1))
          try await other.close()
        }
      }
      #expect(try await engine.read(key: key(1)) == value(1))
      try await engine.write(value(2), key: key(2))
      #expect(try size(of: place) == before)
      try await engine.close()
    }

    @Test("Closing trims the file even if another process has grown the database beyond the map", .ownThreads)
    func closing() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(0), key: key(0))
      await growInAnotherProcess(place)
      try await engine.close()
      let closed = try size(of: place)
      // If closing had not trimmed the whole file, opening would.
      try await place.engine().close()
      #expect(try size(of: place) == closed)
    }

    /// Grows the database beyond the map of the engines that have it open.
    private func growInAnotherProcess(_ place: TemporaryDirectory) async {
      await #expect(processExitsWith: .success) { [url = place.url as URL] in
        let other = try LMDBStorageEngine(directory: FileManager.Directory(url: url))
        try await other.write((0..<100).map { (key($0), value($0, count: 100_000)) })
        try await other.close()
      }
    }

    private func size(of place: TemporaryDirectory) throws -> Int {
      let attributes = try FileManager.default.attributesOfItem(atPath: place.dataFile.path)
      return try #require(attributes[.size] as? Int)
    }

    @Test(
      "A subscription succeeds even if another process has grown the database beyond the map", .ownThreads)
    func subscribing() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(0), key: key(0))
      await growInAnotherProcess(place)
      let changes = try await engine.changes()
      try await engine.write(value(1), key: key(1))
      var received = 0
      for await _ in changes {
        received += 1
        break
      }
      #expect(received == 1)
      #expect(try await engine.keyCount() == 100)
      try await engine.close()
    }
  #endif

  @Test("Space is reused: overwriting does not grow the file indefinitely")
  func spaceIsReused() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    for round in 0..<200 {
      try await engine.write((0..<100).map { (key($0), value(round, count: 2000)) })
    }
    try await engine.close()
    let size = try #require(
      try FileManager.default.attributesOfItem(atPath: place.dataFile.path)[.size] as? Int)
    #expect(size < 2_000_000)
  }

  @Test("A write succeeds while every processor reads all entries in a loop")
  func writesBesideReads() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<5_000).map { (key($0), value($0)) })
    let isOver = Flag()
    // So that a failing test ends. On a busy machine the writes may get no processor for seconds.
    let end = ContinuousClock.now + .seconds(60)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<2 * ProcessInfo.processInfo.activeProcessorCount {
        group.addTask {
          while !isOver.isSet, ContinuousClock.now < end { _ = try await engine.readAllData() }
        }
      }
      for number in 0..<5 { try await engine.write(value(number, count: 50_000), key: key(100_000 + number)) }
      #expect(ContinuousClock.now < end)
      isOver.set()
      try await group.waitForAll()
    }
  }

  @Test(
    "A value that LMDB cannot write with one system call throws .valueTooLarge",
    arguments: [0, 1 << 15, 1 << 31])
  func tooLarge(excess: Int) async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    // Pages of zeros that are never accessed use no memory.
    let size = 0x7FFF_0000 + excess
    let zeros = try #require(mmap(nil, size, PROT_READ, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0))
    try #require(zeros != MAP_FAILED)
    defer { munmap(zeros, size) }
    let large = Data(bytesNoCopy: zeros, count: size, deallocator: .none)
    #expect(await code { try await engine.write(large, key: key(1)) } == .valueTooLarge)
    #expect(try await engine.read(key: key(1)) == value(1))
  }
}
