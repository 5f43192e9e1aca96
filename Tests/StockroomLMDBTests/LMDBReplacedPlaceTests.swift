import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

/// Rule C6: an engine whose files are no longer at the path where it opened them.
@Suite("LMDB files that are deleted, moved or replaced while they are open")
struct LMDBReplacedPlaceTests {
  enum Change: String, CaseIterable, CustomTestStringConvertible {
    case directoryDeleted, directoryMoved, directoryReplaced, dataDeleted, dataReplaced, lockDeleted,
      lockReplaced

    var testDescription: String { rawValue }

    func make(at place: TemporaryDirectory) throws {
      let (manager, lock) = (FileManager.default, place.url.appending(path: "lock.mdb"))
      switch self {
      case .directoryDeleted: try manager.removeItem(at: place.url)
      case .directoryMoved: try manager.moveItem(at: place.url, to: place.neighbor)
      case .directoryReplaced:
        try manager.moveItem(at: place.url, to: place.neighbor)
        try manager.copyItem(at: place.neighbor, to: place.url)
      case .dataDeleted: try manager.removeItem(at: place.dataFile)
      case .dataReplaced:
        try manager.copyItem(at: place.dataFile, to: place.neighbor)
        #expect(rename(place.neighbor.path, place.dataFile.path) == 0)
      case .lockDeleted: try manager.removeItem(at: lock)
      case .lockReplaced:
        try manager.copyItem(at: lock, to: place.neighbor)
        #expect(rename(place.neighbor.path, lock.path) == 0)
      }
    }
  }

  @Test(
    "Every call throws .io once the files have been moved, deleted or replaced", arguments: Change.allCases)
  func changed(_ change: Change) async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<100).map { (key($0), value($0)) })
    #expect(try await engine.read(key: key(1)) == value(1))
    try change.make(at: place)

    #expect(await code { try await engine.write(value(7), key: key(7)) } == .io)
    #expect(await code { try await engine.removeAllData() } == .io)
    // While only the lock file is missing and no other process writes, single reads return the right entries.
    #expect(await code { _ = try await engine.readAllData() } == .io)
    if change != .lockDeleted && change != .lockReplaced {
      #expect(await code { _ = try await engine.read(key: key(1)) } == .io)
      #expect(await code { _ = try await engine.keyCount() } == .io)
    }
    try await engine.close()
  }

  @Test("Nothing is committed if the lock file is deleted while the body of a transaction runs")
  func lockDeletedMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    let lock = place.url.appending(path: "lock.mdb")
    let transaction = await code {
      try await engine.withTransaction { transaction in
        try transaction.write(value(2), key: key(2))
        try FileManager.default.removeItem(at: lock)
      }
    }
    #expect(transaction == .io)
    try await engine.close()
    #expect(try await place.engine().allKeys() == [key(1)])
  }

  @Test("Closing the engine leaves files unchanged that were created in its place since")
  func replacedByAnother() async throws {
    let place = try TemporaryDirectory()
    let old = try place.engine()
    try await old.write((0..<500).map { (key($0), value($0, count: 1_000)) })
    try FileManager.default.removeItem(at: place.url)
    let new = try place.engine()
    try await new.write(value(1), key: key(1))

    #expect(await code { try await old.write(value(2), key: key(2)) } == .io)
    #expect(await code { _ = try await old.read(key: key(400)) } == .io)
    #expect(try await new.allKeys() == [key(1)])
    try await old.close()
    try await new.write(value(3), key: key(3))
    try await new.close()
    #expect(try await place.engine().allKeys() == [key(1), key(3)])
  }

  @Test("A database whose lock file was deleted cannot be opened while an engine still has it open")
  func lockDeleted() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    try FileManager.default.removeItem(at: place.url.appending(path: "lock.mdb"))
    #expect(await code { _ = try place.engine() } == .io)
    try await engine.close()
    let next = try place.engine()
    try await next.write(value(2), key: key(2))
    #expect(try await next.allKeys() == [key(1), key(2)])
  }

  @Test(
    "A replaced database cannot be opened with a lock file that an engine of this process has open")
  func dataReplaced() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    try Change.dataReplaced.make(at: place)
    #expect(await code { _ = try place.engine() } == .io)
    try await engine.close()
    #expect(try await place.engine().allKeys() == [key(1)])
  }

  @Test("The engine works again once the files are back")
  func movedBack() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    try FileManager.default.moveItem(at: place.url, to: place.neighbor)
    #expect(await code { try await engine.write(value(2), key: key(2)) } == .io)
    try FileManager.default.moveItem(at: place.neighbor, to: place.url)
    try await engine.write(value(3), key: key(3))
    #expect(try await engine.allKeys() == [key(1), key(3)])
  }

  #if os(Linux)
    @Test("A data file that is truncated while it is open makes reads and writes throw", .ownThreads)
    func truncated() async throws {
      await #expect(processExitsWith: .success) {
        let place = try TemporaryDirectory()
        let engine = try place.engine()
        try await engine.write((0..<2_000).map { (key($0), value($0, count: 1_000)) })
        _ = try await engine.readAllData()
        for size in [65_536, 0] {
          try #require(truncate(place.dataFile.path, size) == 0)
          try #require(await code { _ = try await engine.readAllData() } == .corrupted)
          try #require(await code { _ = try await engine.read(key: key(1)) } == .corrupted)
          try #require(await code { _ = try await engine.keyCount() } == .corrupted)
          try #require(await code { try await engine.write(value(1), key: key(1)) } == .corrupted)
        }
        try await engine.close()
        try #require(await code { _ = try place.engine() } == .corrupted)
      }
    }

    @Test("A data file overwritten with an older copy makes reads, writes and verify() throw", .ownThreads)
    func overwritten() async throws {
      await #expect(processExitsWith: .success) {
        let place = try TemporaryDirectory()
        let engine = try place.engine()
        for number in 0..<10 { try await engine.write(value(number), key: key(number)) }
        try await engine.close()
        let backup = try Data(contentsOf: place.dataFile)
        let other = try place.engine()
        for number in 10..<20 { try await other.write(value(number), key: key(number)) }
        let file = try FileHandle(forWritingTo: place.dataFile)
        try file.write(contentsOf: backup)
        try file.truncate(atOffset: UInt64(backup.count))
        let reading = await code { _ = try await other.readAllData() }
        try #require(reading == .corrupted || reading == .io)
        let verifying = await code { try await other.verify() }
        try #require(verifying == .corrupted || verifying == .io)
        let writing = await code { try await other.write(value(1), key: key(1)) }
        try #require(writing == .corrupted || writing == .io)
        try await other.close()
        try #require(try await place.engine().keyCount() == 10)
      }
    }
  #endif
}
