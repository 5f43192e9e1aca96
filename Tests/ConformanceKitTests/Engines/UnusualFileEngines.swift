import FaultyEngineWorker
import Foundation
import StockroomCore

/// Its lock file exists while it has the place open. Other engines wait for some time before they throw `locked`.
final class WaitsForItsLock: FaultyEngine {
  let base: ReferenceEngine
  private let path: String
  private let isHeld = MutexProtected(false)

  init(base: ReferenceEngine, directory: URL, waiting time: Duration) async throws {
    self.base = base
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    path = directory.appending(path: "lock").path(percentEncoded: false)
    let end = ContinuousClock.now + time
    while try !Self.takeLock(path) {
      guard ContinuousClock.now < end else { throw StorageError(.locked, "Somebody else has \(path).") }
      try await Task.sleep(for: .milliseconds(50))
    }
    isHeld.withLock { $0 = true }
  }

  deinit { if releaseLock() { unlink(path) } }

  func close() async throws {
    if releaseLock() { try FileManager.default.removeItem(atPath: path) }
    try await base.close()
  }

  private static func takeLock(_ path: String) throws -> Bool {
    guard let file = try FileDescriptor.makeFile(atPath: path, .owner) else { return false }
    file.release()
    return true
  }

  /// Whether the lock was held until now.
  private func releaseLock() -> Bool {
    isHeld.withLock { isHeld in
      defer { isHeld = false }
      return isHeld
    }
  }
}

/// Needs some time for each entry of a request.
struct TakesTimeForEachEntry: FaultyEngine {
  let base: ReferenceEngine
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await Task.sleep(for: .milliseconds(5 * keys.count))
    return try await base.readDataAndKeys(keys: keys)
  }
}
