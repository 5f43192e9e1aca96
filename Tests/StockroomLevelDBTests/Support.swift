import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

extension TemporaryDirectory {
  /// The directory of the engine's files.
  var database: URL { url.appending(path: "Stockroom.leveldb") }

  func open(durability: Durability = .process) throws -> LevelDBStorageEngine {
    try LevelDBStorageEngine(directory: .init(url: url), durability: durability)
  }
}

/// Expects that the engine has exactly these entries.
func expectEntries(
  _ expected: [CacheKey: Data], in engine: LevelDBStorageEngine,
  _ location: SourceLocation = #_sourceLocation
) async throws {
  let all = try await engine.readAllDataAndKeys()
  let isRight = Dictionary(uniqueKeysWithValues: all.map { ($0.key, $0.data) }) == expected
  #expect(isRight, "\(all.count) of \(expected.count) entries", sourceLocation: location)
  #expect(try await engine.keyCount() == expected.count, sourceLocation: location)
}

/// Incompressible bytes.
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
