import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: permissions, and planted files")
struct LevelDBPlantedFilesTests {
  let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test(
    "Files and directories belong to their owner alone, while the database is open and after it is closed")
  func permissions() async throws {
    let place = directory.url.appending(path: "new/place")
    let engine = try LevelDBStorageEngine(directory: .init(url: place), durability: .full)
    try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
    #expect(try modes(below: directory.url.appending(path: "new")) == [0o600, 0o700])
    for number in 0..<3 { try await engine.write(noise(5 << 20), key: CacheKey(verbatim: "\(number)")) }
    try await engine.close()
    #expect(try modes(below: directory.url.appending(path: "new")) == [0o600, 0o700])
  }

  @Test("Files without a LevelDB name are left unchanged, and do not disturb the engine")
  func foreignNames() async throws {
    let names = ["a.log", "server.log", "+7.log", ".log", "LOGBOOK", "LOCKS"]
    var engine = try directory.open(durability: .full)
    func plant() throws {
      for name in names {
        let url = directory.database.appending(path: name)
        try Data("precious".utf8).write(to: url)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: url.path)
      }
    }
    func expectUntouched() throws {
      for name in names {
        let url = directory.database.appending(path: name)
        #expect(try Data(contentsOf: url) == Data("precious".utf8), "\(name)")
        let mode = try FileManager.default.attributesOfItem(atPath: url.path)[.posixPermissions] as? Int
        #expect(mode == 0o644, "\(name)")
      }
    }
    try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
    try plant()
    try await engine.write(Data("b".utf8), key: CacheKey(verbatim: "b"))
    #expect(try await engine.readAllData().count == 2)
    try await engine.verify()
    try await engine.close()
    try expectUntouched()
    engine = try directory.open(durability: .full)
    #expect(try await engine.keyCount() == 2)
    try await engine.close()
    // Now with files that are added while the database is closed.
    for name in names { try FileManager.default.removeItem(at: directory.database.appending(path: name)) }
    engine = try directory.open(durability: .full)
    #expect(try await engine.keyCount() == 2)
    try await engine.close()
    try plant()
    engine = try directory.open(durability: .full)
    try await engine.removeAllData()
    try await engine.close()
    try expectUntouched()
  }

  @Test("Planted files make neither opening nor closing write elsewhere or hang")
  func planted() async throws {
    for name in Self.names {
      for plant in Plant.allCases {
        let directory = try TemporaryDirectory()
        let engine = try directory.open()
        try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
        try await engine.close()
        let victim = directory.url.appending(path: "victim")
        try Data("precious".utf8).write(to: victim)
        try replace(directory.database.appending(path: name), by: plant, victim)
        do {
          let engine = try directory.open()
          try await engine.write(Data("b".utf8), key: CacheKey(verbatim: "b"))
          try await engine.close()
        } catch let error as StorageError {
          #expect(error.description.contains(directory.database.path), "\(name) \(plant): \(error)")
        }
        #expect(try Data(contentsOf: victim) == Data("precious".utf8), "\(name) \(plant)")
      }
    }
  }

  @Test("Files planted while the database is open do not make closing write elsewhere or hang")
  func plantedWhileOpen() async throws {
    for name in ["STOCKROOM.closed", "STOCKROOM.closed.new", "STOCKROOM.room"] {
      for plant in Plant.allCases {
        let directory = try TemporaryDirectory()
        let victim = directory.url.appending(path: "victim")
        try Data("precious".utf8).write(to: victim)
        let engine = try directory.open()
        try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
        try replace(directory.database.appending(path: name), by: plant, victim)
        try await engine.close()
        #expect(try Data(contentsOf: victim) == Data("precious".utf8), "\(name) \(plant)")
      }
    }
  }

  @Test("A write neither follows nor waits for what is planted under the names of the next files")
  func plantedUnderNextNames() async throws {
    for plant in Plant.allCases where plant != .directory {
      let directory = try TemporaryDirectory()
      let victim = directory.url.appending(path: "victim")
      try Data("precious".utf8).write(to: victim)
      let engine = try directory.open()
      try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
      let numbers = try FileManager.default.contentsOfDirectory(atPath: directory.database.path)
        .compactMap { UInt64($0.filter(\.isNumber)) }
      let next = try #require(numbers.max()) + 1
      let planted = (next..<next + 4).map {
        directory.database.appending(path: String(format: "%06llu.log", $0))
      }
      for url in planted { try replace(url, by: plant, victim) }
      for number in 0..<4 {
        let error = await #expect(throws: StorageError.self) {
          try await engine.write(noise(5 << 20), key: CacheKey(verbatim: "\(number)"))
        }
        #expect(error?.code == .corrupted, "\(plant)")
      }
      #expect(try Data(contentsOf: victim) == Data("precious".utf8), "\(plant)")
      for url in planted { try FileManager.default.removeItem(at: url) }
      for number in 0..<4 { try await engine.write(noise(5 << 20), key: CacheKey(verbatim: "\(number)")) }
      #expect(try await engine.keyCount() == 5)
      try await engine.close()
    }
  }

  @Test("A symbolic link in place of the database's directory is not followed")
  func plantedDirectory() throws {
    let elsewhere = directory.url.appending(path: "elsewhere")
    try FileManager.default.createDirectory(at: elsewhere, withIntermediateDirectories: false)
    let place = directory.url.appending(path: "place")
    try FileManager.default.createDirectory(at: place, withIntermediateDirectories: false)
    try FileManager.default.createSymbolicLink(
      at: place.appending(path: "Stockroom.leveldb"), withDestinationURL: elsewhere)
    #expect(throws: StorageError.self) { try LevelDBStorageEngine(directory: .init(url: place)) }
    #expect(try FileManager.default.contentsOfDirectory(atPath: elsewhere.path).isEmpty)
  }

  enum Plant: CaseIterable { case link, danglingLink, fifo, directory }

  static let names = [
    "STOCKROOM", "STOCKROOM.closed", "STOCKROOM.new", "STOCKROOM.closed.new", "STOCKROOM.unsynced", "LOCK",
    "LOG",
    "LOG.old", "CURRENT", "CURRENT.new", "MANIFEST-000002", "MANIFEST-000004", "MANIFEST-000005",
    "000003.log",
    "000005.log", "000006.log", "000007.log", "000005.ldb", "000006.ldb", "000004.dbtmp", "000006.dbtmp",
  ]

  private func replace(_ file: URL, by plant: Plant, _ victim: URL) throws {
    try? FileManager.default.removeItem(at: file)
    switch plant {
    case .link: try FileManager.default.createSymbolicLink(at: file, withDestinationURL: victim)
    case .danglingLink:
      try FileManager.default.createSymbolicLink(
        at: file, withDestinationURL: victim.deletingLastPathComponent().appending(path: "nowhere"))
    case .fifo: try #require(mkfifo(file.path, 0o600) == 0)
    case .directory: try FileManager.default.createDirectory(at: file, withIntermediateDirectories: false)
    }
  }

  private func modes(below url: URL) throws -> [Int] {
    var modes: Set<Int> = []
    for path in try [""] + FileManager.default.subpathsOfDirectory(atPath: url.path) {
      let attributes = try FileManager.default.attributesOfItem(atPath: url.appending(path: path).path)
      modes.insert(try #require(attributes[.posixPermissions] as? Int))
    }
    return modes.sorted()
  }
}
