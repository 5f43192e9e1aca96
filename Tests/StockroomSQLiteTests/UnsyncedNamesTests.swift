#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomSQLite
  import TestFixtures
  import Testing

  @Suite("SQLite: names of files that another engine may not have synced") struct UnsyncedNamesTests {
    /// How often opening the database opens its directory.
    private func openings(of place: TestPlace, _ counter: DirectoryOpenings) async throws -> Int {
      _ = counter.takeCount()
      let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
      let count = counter.takeCount()
      try await engine.close()
      return count
    }

    @Test("The first write at full syncs the directory, although another engine has made the log")
    func log() async throws {
      let place = try TestPlace()
      let maker = try SQLiteStorageEngine(directory: place.directory, durability: .process)
      try await maker.write(data("1"), key: key(1))
      let engine = try SQLiteStorageEngine(directory: place.directory, durability: .full)
      let counter = try DirectoryOpenings(of: place.url)
      try await engine.write(data("2"), key: key(2))
      #expect(counter.takeCount() > 0)
      try await engine.close()
      try await maker.close()
    }

    @Test("The directory is synced if the database has a second name")
    func database() async throws {
      let place = try TestPlace()
      try await SQLiteStorageEngine(directory: place.directory).close()
      let counter = try DirectoryOpenings(of: place.url)
      let count = try await openings(of: place, counter)
      try FileManager.default.linkItem(atPath: place.database, toPath: place.database + "2")
      #expect(try await openings(of: place, counter) == count + 1)
    }
  }
#endif
