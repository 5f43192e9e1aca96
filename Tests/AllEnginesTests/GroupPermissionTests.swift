import Foundation
import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomSQLite
import TestFixtures
import Testing

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

@Suite struct GroupPermissionTests {
  static let engines:
    [(name: String, open: @Sendable (FileManager.Directory) async throws -> any StorageEngine)] = [
      ("files", { try DiskStorageEngine(directory: $0, permissions: .group) }),
      ("sqlite", { try SQLiteStorageEngine(directory: $0, permissions: .group) }),
      ("lmdb", { try LMDBStorageEngine(directory: $0, permissions: .group) }),
      ("leveldb", { try LevelDBStorageEngine(directory: $0, permissions: .group) }),
    ]

  @Test(
    "With permissions for the group, everything in a directory that hands on its group belongs to that group",
    .enabled(if: geteuid() == 0, "Only root may give files to any group."), arguments: engines.map(\.name))
  func belongsToGroupOfPlace(_ name: String) async throws {
    let place = try TemporaryDirectory()
    let group: gid_t = 4_242
    #expect(chown(place.url.path, geteuid(), group) == 0)
    #expect(chmod(place.url.path, 0o2770) == 0)
    let engine = try #require(Self.engines.first { $0.name == name })
    let storage = try await engine.open(place.directory)
    let changes = try await storage.changes()
    try await storage.write(Data("v".utf8), key: CacheKey(verbatim: "short"))
    try await storage.write(Data("v".utf8), key: CacheKey(verbatim: String(repeating: "k", count: 400)))
    try await storage.write([
      (CacheKey(verbatim: "short"), Data("w".utf8)), (CacheKey(verbatim: "other"), Data("w".utf8)),
    ])
    var others: [String] = []
    for path in try FileManager.default.subpathsOfDirectory(atPath: place.url.path) {
      guard let status = try FileStatus(atPath: place.appending(path).path) else { continue }
      if status.group != group { others.append(path) }
    }
    #expect(others == [])
    withExtendedLifetime(changes) {}
    try await storage.close()
  }

  @Test(
    "The log of changes has the owner and the permissions of the place, no matter which user subscribes first",
    .enabled(if: geteuid() == 0, "Only root may give files to another user."), arguments: logs.map(\.name))
  func logOfChanges(_ name: String) async throws {
    let place = try TemporaryDirectory()
    let engine = try #require(Self.engines.first { $0.name == name })
    let log = try #require(Self.logs.first { $0.name == name })
    let first = try await engine.open(place.directory)
    try await first.write(Data("v".utf8), key: CacheKey(verbatim: "k"))
    try await first.close()
    let (user, group): (uid_t, gid_t) = (4_241, 4_242)
    for path in try FileManager.default.subpathsOfDirectory(atPath: place.url.path) {
      try #require(chown(place.appending(path).path, user, group) == 0)
    }
    let other = try await log.open(place.directory)
    let changes = try await other.changes()
    let status = try #require(try FileStatus(atPath: place.appending(log.path).path))
    #expect(status.mode & 0o777 == 0o660 && status.owner == user && status.group == group)
    withExtendedLifetime(changes) {}
    try await other.close()
  }

  /// Engines that are opened without particular permissions, and their logs of changes.
  static let logs:
    [(
      name: String, path: String, open: @Sendable (FileManager.Directory) async throws -> any StorageEngine
    )] = [
      ("files", ".stockroom/changes", { try DiskStorageEngine(directory: $0) }),
      ("sqlite", "data.sqlite3-changes", { try SQLiteStorageEngine(directory: $0) }),
      ("lmdb", "changes.log", { try LMDBStorageEngine(directory: $0) }),
    ]
}
