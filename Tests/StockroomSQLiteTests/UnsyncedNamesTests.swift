#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomSQLite
  import TestFixtures
  import Testing

  @Suite("SQLite: names of files that another engine may not have synced") struct UnsyncedNamesTests {
    /// How often opening the database opens its directory.
    private func openings(
      of place: TestPlace, _ durability: Durability, _ counter: DirectoryOpenings
    ) async throws -> Int {
      _ = counter.takeCount()
      let engine = try SQLiteStorageEngine(directory: place.directory, durability: durability)
      let count = counter.takeCount()
      try await engine.close()
      return count
    }

    @Test("At full, the directory is synced if there is a log that this engine has not made")
    func log() async throws {
      let place = try TestPlace()
      let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
      try await engine.write(data("1"), key: key(1))
      let counter = try DirectoryOpenings(of: place.url)
      let count = try await openings(of: place, .process, counter)
      #expect(try await openings(of: place, .full, counter) > count)
      try await engine.close()
    }

    @Test("The directory is synced if the database has a second name")
    func database() async throws {
      let place = try TestPlace()
      try await SQLiteStorageEngine(directory: place.directory).close()
      let counter = try DirectoryOpenings(of: place.url)
      let count = try await openings(of: place, .process, counter)
      try FileManager.default.linkItem(atPath: place.database, toPath: place.database + "2")
      // And listed once, in search of the name under which the database was made.
      #expect(try await openings(of: place, .process, counter) > count + 1)
    }
  }
#endif
