import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

@Suite struct LMDBSharedEnvironmentTests {
  @Test("Two engines on one place, one through a symbolic link, see each other's writes")
  func shared() async throws {
    let place = try TemporaryDirectory()
    let link = place.url.appendingPathExtension("link")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: place.url)
    defer { try? FileManager.default.removeItem(at: link) }

    let one = try place.engine()
    let other = try LMDBStorageEngine(directory: FileManager.Directory(url: link), durability: .full)
    try await one.write(value(1), key: key(1))
    #expect(try await other.read(key: key(1)) == value(1))
    try await other.write(value(2), key: key(1))
    #expect(try await one.read(key: key(1)) == value(2))

    try await one.close()
    #expect(await code { _ = try await one.read(key: key(1)) } == .closed)
    try await other.write(value(3), key: key(3))
    #expect(try await other.keyCount() == 2)
    try await other.close()
    #expect(try await place.engine().keyCount() == 2)
  }

  @Test("At full, the removal of a key that another engine has removed at process is a commit")
  func removalAfterUnsyncedRemoval() async throws {
    let place = try TemporaryDirectory()
    let unsynced = try place.engine(durability: .process)
    let synced = try place.engine(durability: .full)
    try await synced.write([(key(1), value(1)), (key(2), value(2))])
    try await unsynced.remove(key: key(1))
    var number = try newestTransaction(in: place)
    let removals: [@Sendable () async throws -> Void] = [
      { try await synced.remove(key: key(1)) }, { try await synced.remove(keys: [key(1), key(3)]) },
      { try await synced.withTransaction { try $0.remove(key: key(1)) } },
    ]
    for remove in removals {
      try await remove()
      let newest = try newestTransaction(in: place)
      #expect(newest == number + 1)
      number = newest
    }
    try await unsynced.remove(key: key(1))
    try await synced.withTransaction { _ = try $0.read(key: key(2)) }
    #expect(try newestTransaction(in: place) == number)
    #expect(try await synced.allKeys() == [key(2)])
    for engine in [unsynced, synced] { try await engine.close() }
  }

  /// The number of the latest commit, from the two meta pages of the file.
  private func newestTransaction(in place: TemporaryDirectory) throws -> UInt64 {
    let bytes = try Data(contentsOf: place.dataFile)
    let pageSize = bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 40, as: UInt32.self) }
    return bytes.withUnsafeBytes { bytes in
      max(
        bytes.loadUnaligned(fromByteOffset: 144, as: UInt64.self),
        bytes.loadUnaligned(fromByteOffset: 144 + Int(pageSize), as: UInt64.self))
    }
  }

  @Test("Engines that open a new place concurrently share it")
  func openedAtOnce() async throws {
    for _ in 0..<20 {
      let place = try TemporaryDirectory()
      let (directory, count) = (place.directory, 16)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<count {
          group.addTask {
            let engine = try LMDBStorageEngine(directory: directory, durability: .process)
            try await engine.write(value(number), key: key(number))
            if number.isMultiple(of: 2) { try await engine.close() }
          }
        }
        try await group.waitForAll()
      }
      #expect(try await place.engine().keyCount() == count)
    }
  }

  @Test("Closing an engine trims the file")
  func trimmed() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<5000).map { (key($0), value($0, count: 1000)) })
    try await engine.close()
    let size = try #require(
      try FileManager.default.attributesOfItem(atPath: place.dataFile.path)[.size] as? Int)
    #expect(size > 5_000_000 && size < 11_500_000)
  }

  @Test("Engines of both durabilities can write to one place concurrently")
  func durabilities() async throws {
    let place = try TemporaryDirectory()
    let full = try place.engine(durability: .full)
    let process = try place.engine(durability: .process)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<200 {
        let engine = number.isMultiple(of: 2) ? full : process
        group.addTask { try await engine.write(value(number), key: key(number)) }
      }
      try await group.waitForAll()
    }
    #expect(try await full.keyCount() == 200)
  }

  @Test("A cancelled write throws and writes nothing")
  func cancelled() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await engine.write(value(1), key: key(1))
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await engine.keyCount() == 0)
  }

  @Test("A cancelled bulk read throws")
  func cancelledRead() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<5000).map { (key($0), value($0)) })
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return try await engine.readAllData()
    }
    await #expect(throws: CancellationError.self) { try await task.value }
  }
}
