import FaultyEngineWorker
import Foundation
import StockroomCore

/// Finds the position of a value, and reads the file in a second step, before which the file may have been compacted.
final class ReadsWhereItWas: FaultyBatchEngine {
  let base: ReferenceEngine
  private let written = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  /// The number of the file. There is a new one after every 4 MiB.
  private var file: Int { written.withLock { $0 >> 22 } }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    let size = operations.reduce(0) { size, operation in
      if case .write(let data, _) = operation { size + data.count } else { size }
    }
    written.withLock { $0 += size }
  }
  func removeAllData() async throws { try await base.removeAllData() }
  func read(key: CacheKey) async throws -> Data? {
    let number = file
    let value = try await base.read(key: key)
    if let value, value.count > 100_000 { for _ in 0..<20 { await Task.yield() } }
    // Another value is at that position in the new file.
    guard let value, value.count > 100_000, file != number else { return value }
    return Data(value.dropFirst(value.count / 2))
  }
}
