import Foundation
import StockroomCLMDB
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomLMDB

@Suite("LMDB while it is being opened") struct LMDBOpeningTests {
  @Test("A database that another process grows before the first transaction is remapped")
  func grown() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    // Without LMDB's locks, because with them a process must not open an environment twice.
    var opened: OpaquePointer?
    try #require(mdb_env_create(&opened) == 0)
    let environment = try #require(opened)
    defer { mdb_env_close(environment) }
    try #require(mdb_env_set_mapsize(environment, 1 << 20) == 0)
    try #require(
      mdb_env_open(environment, place.url.path, UInt32(MDB_NOLOCK | MDB_NOTLS | MDB_RDONLY), 0o600) == 0)
    try await engine.write(value(2, count: 3 << 20), key: key(2))

    var transaction: OpaquePointer?
    try #require(mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &transaction) == MDB_MAP_RESIZED)
    let number = try LMDBHandle.inTransaction(of: environment, flags: MDB_RDONLY) { mdb_txn_id($0) }
    #expect(number > 0)
    #expect(LMDBHandle.information(environment).me_mapsize > 3 << 20)
    try await engine.close()
  }

  #if os(Linux)
    @Test("The directory is synced if the database has a second name, which its maker may not have removed")
    func secondName() async throws {
      let place = try TemporaryDirectory()
      try await place.engine().close()
      let counter = try DirectoryOpenings(of: place.url)
      var counts: [Int] = []
      for hasSecondName in [false, true] {
        if hasSecondName {
          try FileManager.default.linkItem(at: place.dataFile, to: place.appending("second"))
        }
        _ = counter.takeCount()
        let engine = try place.engine()
        counts.append(counter.takeCount())
        try await engine.close()
      }
      #expect(counts[1] == counts[0] + 1)
    }
  #endif
}
