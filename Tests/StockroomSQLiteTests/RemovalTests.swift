import Foundation
import StockroomCore
import TestFixtures
import StockroomSQLite
import Testing

/// The disk space of removed entries.
@Suite struct RemovalTests {
  let entries = (0..<400).map { (key: key($0), data: Data(count: $0.isMultiple(of: 2) ? 300 : 9_000)) }

  @Test(
    "Removing all entries frees the disk space that the remaining entries do not need",
    arguments: [false, true])
  func room(isReading: Bool) async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write(entries)
    try await engine.close()
    let full = try #require(try size(of: place.database))
    #expect(full > 1 << 20)

    let again = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    let reader = try RawConnection(place.database)
    if isReading { try reader.run("BEGIN; SELECT * FROM entries") }
    try await again.apply([.removeAll, .write(data("new"), key: key(1_000))])
    #expect(try await again.readAllData() == [data("new")])
    if isReading {
      // Reads of the removed entries continue.
      try reader.run("SELECT * FROM entries; COMMIT")
      try await again.write(data("newer"), key: key(1_000))
      try await again.close()
    }
    let (left, log) = (try size(of: place.database), try size(of: place.log))
    #expect(left ?? .max < 100_000)
    #expect(log ?? 0 < full)
    if !isReading { try await again.close() }

    let last = try SQLiteStorageEngine(directory: place.directory)
    #expect(try await last.allKeys() == [key(1_000)])
    try await last.verify()
    try await last.write(entries)
    #expect(try await last.readAllEntries().map(\.key) == [key(1_000)] + entries.map(\.key))
    try await last.close()
  }

  #if os(Linux)
    @Test(
      "On a disk that others have filled, all entries can be removed and new ones written",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)),
      arguments: [300, 9_000])
    func fullDisk(valueSize: Int) async throws {
      let disk = try SmallDisk("size=6000k")
      let engine = try SQLiteStorageEngine(directory: disk.directory, durability: .process)
      let entries =
        [(key(0), data("x"))]
        + (1..<1_000_000 / valueSize).map { (key: key($0), data: Data(count: valueSize)) }
      try await engine.write(entries)
      try await engine.close()
      let again = try SQLiteStorageEngine(directory: disk.directory, durability: .process)
      // The log gets space for a small batch, and none for growth of the database.
      for _ in 0..<50 { try await again.write(data("x"), key: key(0)) }
      try disk.fill()
      let refusal = await #expect(throws: StorageError.self) {
        try await again.write(Data(count: 8_000_000), key: key(1_000_000))
      }
      #expect(refusal?.code == .diskFull)
      try await again.removeAllData()
      #expect(try await again.keyCount() == 0)
      try await again.write(Data(count: valueSize), key: key(1))
      #expect(try await again.readAllData() == [Data(count: valueSize)])
      try await again.close()
    }

    /// Regression: each write that found no space added a commit to the log, until there was no space to remove entries.
    @Test(
      "Writes that find no space use up none of it",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
    func failingWrites() async throws {
      let disk = try SmallDisk("size=3m")
      let engine = try SQLiteStorageEngine(directory: disk.directory, durability: .process)
      var failures = 0
      for number in 0..<500 {
        do {
          try await engine.write(Data(count: 400_000), key: key(number))
        } catch let error as StorageError where error.code == .diskFull {
          failures += 1
        }
      }
      #expect(failures > 450)
      try await engine.apply([.removeAll, .write(data("x"), key: key(0))])
      #expect(try await engine.readAllData() == [data("x")])
      try await engine.close()
    }
  #endif
}
