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
