import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// Files that another program has planted under the names of the database's files (rules O2, O5).
@Suite(.timeLimit(.minutes(60))) struct PlantedFilesTests {
  enum Planted: String, CaseIterable, Sendable {
    case link, danglingLink, linkToDatabase, pipe, directory

    /// Returns the file that a link points to.
    @discardableResult
    func plant(at path: String, in place: TestPlace) async throws -> URL? {
      let files = FileManager.default
      let target = place.parent.appending(path: "target")
      switch self {
      case .link: try data("somebody else's").write(to: target)
      case .danglingLink: break
      case .linkToDatabase:
        let engine = try SQLiteStorageEngine(directory: .init(url: place.parent), databaseFilename: "other")
        try await engine.write(data("other"), key: key(0))
        try await engine.close()
        try files.moveItem(at: place.parent.appending(path: "other.sqlite3"), to: target)
      case .pipe:
        try #require(mkfifo(path, 0o666) == 0)
        return nil
      case .directory:
        try files.createDirectory(atPath: path, withIntermediateDirectories: false)
        return nil
      }
      try files.createSymbolicLink(atPath: path, withDestinationPath: target.path(percentEncoded: false))
      return target
    }
  }

  @Test(
    "A planted file under the name of a database file is refused by name, and never written through",
    arguments: Planted.allCases, ["", "-wal", "-shm", "-journal"])
  func refused(planted: Planted, suffix: String) async throws {
    let place = try TestPlace()
    let path = place.database + suffix
    if suffix.isEmpty {
      try FileManager.default.createDirectory(at: place.url, withIntermediateDirectories: true)
    } else {
      let engine = try SQLiteStorageEngine(directory: place.directory)
      try await engine.write(data("x"), key: key(0))
      try await engine.close()
    }
    let target = try await planted.plant(at: path, in: place)
    let before = target.flatMap { try? Data(contentsOf: $0) }
    await expectError(.unsupported, naming: path) { try SQLiteStorageEngine(directory: place.directory) }
    if let target { #expect((try? Data(contentsOf: target)) == before) }
    // The links, the pipe and the directory are unchanged; apart from them there is only the database.
    let names = try FileManager.default.contentsOfDirectory(atPath: place.url.path(percentEncoded: false))
    #expect(
      Set(names)
        == Set([(place.database as NSString).lastPathComponent, (path as NSString).lastPathComponent]))
  }

  @Test(
    "A hard link beside the database to another file is refused by name, and not overwritten",
    arguments: ["-wal", "-shm", "-journal"])
  func hardLink(suffix: String) async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("x"), key: key(0))
    try await engine.close()
    let (path, target) = (place.database + suffix, place.parent.appending(path: "target"))
    try data("somebody else's").write(to: target)
    try FileManager.default.linkItem(atPath: target.path(percentEncoded: false), toPath: path)
    await expectError(.unsupported, naming: path) { try SQLiteStorageEngine(directory: place.directory) }
    #expect(try Data(contentsOf: target) == data("somebody else's"))
  }

  @Test("A parent directory of the database may be a symbolic link")
  func linkedParent() async throws {
    let place = try TestPlace()
    let link = place.parent.appending(path: "link", directoryHint: .notDirectory)
    try FileManager.default.createDirectory(at: place.url, withIntermediateDirectories: true)
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: place.url)
    let engines = try [place.url, link, link.appending(path: "below")].map {
      try SQLiteStorageEngine(directory: .init(url: $0))
    }
    try await engines[0].write(data("x"), key: key(0))
    #expect(try await engines[1].read(key: key(0)) == data("x"))
    #expect(try await engines[2].read(key: key(0)) == nil)
    for engine in engines { try await engine.close() }
  }

  @Test(
    "The files belong to their owner alone, or also to the group if requested",
    arguments: [FilePermissions.owner, .group])
  func permissions(_ permissions: FilePermissions) async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, permissions: permissions)
    try await engine.write(data("x"), key: key(0))
    #expect(try mode(of: place.url.path(percentEncoded: false)) == (permissions == .owner ? 0o700 : 0o770))
    for path in [place.database, place.log, place.sharedMemory] {
      #expect(try mode(of: path) == (permissions == .owner ? 0o600 : 0o660))
    }
    try await engine.close()
  }

  @Test("An existing database keeps its permissions, and files created beside it get the same")
  func permissionsOfOthers() async throws {
    let place = try TestPlace()
    try await SQLiteStorageEngine(directory: place.directory).close()
    try #require(chmod(place.database, 0o640) == 0)
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("x"), key: key(0))
    for path in [place.database, place.log, place.sharedMemory] { #expect(try mode(of: path) == 0o640) }
    try await engine.close()
  }

  @Test("A pipe planted as the journal of an open database blocks no reader")
  func plantedLater() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write((0..<100).map { (key($0), Data(count: 9_000)) })
    try #require(mkfifo(place.database + "-journal", 0o666) == 0)
    // Some of these reads need a new connection, which cannot be opened.
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<20 {
        group.addTask {
          do {
            let count = try await engine.readAllData().count
            #expect(count == 100)
          } catch let error as StorageError {
            #expect(error.code == .unsupported)
          }
        }
      }
      try await group.waitForAll()
    }
    try FileManager.default.removeItem(atPath: place.database + "-journal")
    #expect(try await engine.readAllData().count == 100)
    try await engine.close()
  }
}

/// The permissions of a file or directory.
func mode(of path: String) throws -> Int? {
  (try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? NSNumber)?.intValue
}
