import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines whose transactions have a maximum size.

/// Removes only as many entries as one statement can.
final class RemovesTheFirstInBodies: ForwardingTransaction {
  private let count: Int
  init(_ base: any StorageTransaction, count: Int) {
    self.count = count
    super.init(base)
  }
  override func removeAll() throws {
    for key in try base.allKeys().prefix(count) { try base.remove(key: key) }
  }
}

/// Subtracts at most this many removed entries from the stored count.
final class CountsRemovedInBodies: ForwardingTransaction {
  private let limit: Int
  private var uncounted = 0
  init(_ base: any StorageTransaction, beyond limit: Int) {
    self.limit = limit
    super.init(base)
  }
  override func removeAll() throws {
    uncounted = max(0, try base.keyCount() - limit)
    try base.removeAll()
  }
  override func keyCount() throws -> Int { try base.keyCount() + uncounted }
}

/// Scans by pages, but only applies the bound to the first one.
final class ScansPagesInBodies: ForwardingTransaction {
  private let size: Int
  init(_ base: any StorageTransaction, size: Int) {
    self.size = size
    super.init(base)
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let found = try base.scan(range, limit: limit)
    guard limit == nil, found.count > size else { return found }
    let page = found.prefix(size)
    return page + (try base.scan(KeyRange(after: page.last?.key, upTo: nil), limit: nil))
  }
}

/// Binds each key that a body reads to a parameter. The number of parameters is limited.
final class AsksForFewKeysInBodies: ForwardingTransaction {
  private let count: Int
  init(_ base: any StorageTransaction, count: Int) {
    self.count = count
    super.init(base)
  }
  override func read(keys: [CacheKey]) throws -> [Data] {
    if keys.count > count { throw StorageError(.io, "There are too many parameters in the statement.") }
    return try base.read(keys: keys)
  }
}

/// Commits only the first writes of a body, up to a limit.
struct CommitsTheFirstBytes: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations) = try await runOnCopy(body)
    var bytes = 0
    try await base.apply(
      operations.filter { operation in
        if case .write(let data, _) = operation { bytes += data.count }
        return bytes <= count
      })
    return result
  }
}

/// Commits the changes of a body in several parts.
struct CommitsInParts: FaultyEngine {
  let base: ReferenceEngine
  /// Whether a part ends after this many bytes or changes.
  let ends: @Sendable (_ bytes: Int, _ count: Int) -> Bool
  init(base: ReferenceEngine, ends: @escaping @Sendable (_ bytes: Int, _ count: Int) -> Bool) {
    (self.base, self.ends) = (base, ends)
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations) = try await runOnCopy(body)
    var (part, bytes): ([StorageOperation], Int) = ([], 0)
    for operation in operations {
      part.append(operation)
      if case .write(let data, _) = operation { bytes += data.count }
      guard ends(bytes, part.count) else { continue }
      try await base.apply(part)
      (part, bytes) = ([], 0)
      await Task.yield()
    }
    try await base.apply(part)
    return result
  }
}
