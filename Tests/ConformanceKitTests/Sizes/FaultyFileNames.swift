import FaultyEngineWorker
import Foundation
import StockroomCore

/// Has a file for each entry with a long key. An entry whose key is the name of that file uses the same file.
final class NamesFilesOfLongKeys: FaultyEngine {
  let base: ReferenceEngine
  private let directory: URL
  private let longKeys = MutexProtected<[String: CacheKey]>([:])
  init(base: ReferenceEngine, directory: URL) { (self.base, self.directory) = (base, directory) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    var batch = dataAndKeys
    for (key, data) in dataAndKeys {
      if key.value.utf8.count > 255 {
        let name = "long-\(key.value.utf8.count)"
        try Data().write(to: directory.appending(path: name))
        longKeys.withLock { $0[name] = key }
      } else if let longKey = longKeys.withLock({ $0[key.value] }) {
        batch.append((longKey, data))
      }
    }
    try await base.write(batch)
  }
}

/// Has files for large values, which begin with a magic number. Treats each value that begins with it as the contents
/// of one.
struct MarksLargeValues: FaultyEngine {
  private static let mark = Data("BLB1".utf8)
  let base: ReferenceEngine
  let directory: URL
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    for (_, data) in dataAndKeys where data.count > 100_000 {
      try (Self.mark + data).write(to: directory.appending(path: "large"))
    }
  }
  func read(key: CacheKey) async throws -> Data? {
    let value = try await base.read(key: key)
    guard let value, value.starts(with: Self.mark) else { return value }
    return Data(value.dropFirst(Self.mark.count))
  }
}
