import Foundation
import PeerEngines
import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomSQLite

/// One of Stockroom's engines, or a peer.
struct Subject: Sendable {
  let name: String
  let open: @Sendable (URL, Durability) throws -> any StorageEngine

  static let all =
    [
      Subject(name: "Memory") { _, _ in MemoryStorageEngine() },
      Subject(name: "Files") { try DiskStorageEngine(directory: .init(url: $0), durability: $1) },
      Subject(name: "SQLite") { try SQLiteStorageEngine(directory: .init(url: $0), durability: $1) },
      Subject(name: "LMDB") { try LMDBStorageEngine(directory: .init(url: $0), durability: $1) },
      Subject(name: "LevelDB") { try LevelDBStorageEngine(directory: .init(url: $0), durability: $1) },
    ] + Peer.all.map { Subject(name: $0.name, open: $0.open) }
}
