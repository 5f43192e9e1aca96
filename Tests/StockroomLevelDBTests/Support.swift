import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB

extension TemporaryDirectory {
  /// Where the engine has its files.
  var database: URL { url.appending(path: "Stockroom.leveldb") }

  func open(durability: Durability = .process) throws -> LevelDBStorageEngine {
    try LevelDBStorageEngine(directory: .init(url: url), durability: durability)
  }
}

/// Bytes that no compression makes shorter.
func noise(_ count: Int) -> Data {
  let start = Int.random(in: 0...max(0, noiseSource.count - count))
  var noise = Data(capacity: count)
  while noise.count < count { noise += noiseSource[start...].prefix(count - noise.count) }
  return noise
}

private let noiseSource: Data = {
  var bytes = Data()
  guard let device = FileHandle(forReadingAtPath: "/dev/urandom") else { return Data(count: 1) }
  while bytes.count < 4 << 20 { bytes += device.readData(ofLength: 1 << 20) }
  return bytes
}()
