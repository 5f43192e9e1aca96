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
}
