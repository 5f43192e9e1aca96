import Foundation
import StockroomCore
import StockroomLevelDB

/// A directory that goes away with the last reference to it.
final class TemporaryDirectory: Sendable {
  let url: URL

  init() throws {
    url = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(at: url) }

  /// Where the engine has its files.
  var database: URL { url.appending(path: "Stockroom.leveldb") }

  func open(durability: Durability = .process) throws -> LevelDBStorageEngine {
    try LevelDBStorageEngine(directory: .init(url: url), durability: durability)
  }
}
