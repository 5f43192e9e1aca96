import Foundation
import Stockroom
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import TestFixtures
import Testing

/// Each nesting doubles the length of the type's name.
private struct Pair<First, Second>: Codable, Sendable, Identifiable { var id: String }
private typealias Doubled<Item> = Pair<Item, Item>

@Suite("Directories that are named after types") struct DefaultPlacesTests {
  @Test("Two types of one name do not share a directory", .ownThreads)
  func sameName() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        try await useSetting()
        let error = await #expect(throws: StorageError.self) { try await useOtherSetting() }
        try #require(error?.code == .unsupported)
        // The first still has its place.
        try await useSetting()
      }
    }
  }

  @Test(
    "A store of items whose type has a name that is too long for a file has a place of its own", .ownThreads)
  func longTypeName() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        typealias Long = Doubled<Doubled<Doubled<Doubled<Int>>>>
        typealias Other = Pair<Long, Int>
        try #require(String(reflecting: Long.self).utf8.count > 255)
        try await Store<Long>().insert(Long(id: "1"))
        try await Store<Other>().insert(Other(id: "2"))
        try #require(try await Store<Long>().items.map(\.id) == ["1"])
        try #require(try await Store<Other>().items.map(\.id) == ["2"])
      }
    }
  }

  #if os(Linux)
    @Test("An engine, store or cache without a directory is in a directory of the program's own", .ownThreads)
    func programDirectories() async {
      await #expect(processExitsWith: .success) {
        try await withOwnDataDirectory {
          // Databases of other programs, at the default places of several libraries.
          let data = FileManager.Directory.defaultStorageDirectory.url
          for place in ["Data", "Stores", "Stockroom"] {
            try FileManager.default.createDirectory(
              at: data.appending(path: place), withIntermediateDirectories: true)
            try Data("theirs".utf8).write(to: data.appending(path: "\(place)/data.sqlite3"))
          }
          let key = CacheKey("key")
          try await SQLiteStorageEngine.default.write(Data(), key: key)
          try await SQLiteStorageEngine.default(appendingPath: "a/b").write(Data(), key: key)
          try await DiskStorageEngine.default.write(Data(), key: key)
          try await LMDBStorageEngine.default.write(Data(), key: key)
          try await LevelDBStorageEngine.default.write(Data(), key: key)
          try await LevelDBStorageEngine.default(appendingPath: "c").write(Data(), key: key)
          try await Store<Setting>().insert(Setting(id: "1"))
          try await PersistentCache<String, Setting>().store(Setting(id: "1"), forKey: "key")

          let program = ProcessInfo.processInfo.processName
          func names(_ path: String) throws -> Set<String> {
            Set(try FileManager.default.contentsOfDirectory(atPath: data.appending(path: path).path))
          }
          try #require(try names("") == ["Data", "Stockroom", "Stores", "caches", program])
          try #require(
            try names("\(program)/Stockroom") == ["Data", "Files", "LMDB", "LevelDB", "Stores", "a", "c"])
          try #require(try names("caches") == [program])
        }
      }
    }

    @Test(
      "The default engines that throw are opened again after that, and are one for the program", .ownThreads)
    func defaultEngines() async {
      await #expect(processExitsWith: .success) {
        try await withOwnDataDirectory {
          let data = FileManager.Directory.defaultStorageDirectory.url
          try Data().write(to: data)
          #expect(throws: StorageError.self) { try LMDBStorageEngine.default }
          #expect(throws: StorageError.self) { try LevelDBStorageEngine.default }
          try FileManager.default.removeItem(at: data)
          try #require(try LMDBStorageEngine.default === LMDBStorageEngine.default)
          try #require(try LevelDBStorageEngine.default === LevelDBStorageEngine.default)
        }
      }
    }
  #endif

  @Test("Two caches of the same types are one cache; one with another namespace is separate", .ownThreads)
  func cacheMadeTwice() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        let (first, second) = (PersistentCache<Int, String>(), PersistentCache<Int, String>())
        first[1] = "one"
        try #require(try await second[1] == "one")
        try await second.store("two", forKey: 1)
        try #require(try await first[1] == "two")
        try await second.removeAll()
        try #require(try await first[1] == nil)

        let users = PersistentCache<Int, String>(namespace: "users")
        let rooms = PersistentCache<Int, String>(namespace: "rooms")
        try await users.store("Ada", forKey: 1)
        try #require(try await rooms.fetch(1) { "kitchen" } == "kitchen")
        try #require(try await PersistentCache<Int, String>(namespace: "users")[1] == "Ada")

        let other = PersistentCache<Int, Int>(namespace: "users")
        let error = await #expect(throws: StorageError.self) { try await other[1] }
        try #require(error?.code == .unsupported)
        await #expect(throws: StorageError.self) { try await other.store(1, forKey: 1) }
        try #require(try await users[1] == "Ada")
      }
    }
  }

  @Test("Assignments to a cache that was released are read by the next one", .ownThreads)
  func cacheMadeAgain() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        for round in 0..<20 {
          PersistentCache<String, Int>(namespace: "n")["\(round)"] = round
          try #require(try await PersistentCache<String, Int>(namespace: "n")["\(round)"] == round)
        }
      }
    }
  }
}

private struct Setting: Codable, Sendable, Identifiable { var id: String }

private func useSetting() async throws {
  try await Store<Setting>().insert(Setting(id: "1"))
  try await PersistentCache<String, Setting>().store(Setting(id: "1"), forKey: "key")
}
