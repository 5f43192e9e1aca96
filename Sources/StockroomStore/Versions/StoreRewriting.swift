import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Entries of older versions that a store rewrites as one batch, among its other changes.
final class StoreRewriting: Sendable {
  let keys: [CacheKey]
  /// The result, once it is known.
  let result = MutexProtected<RewritingBatch?>(nil)

  init(_ keys: [CacheKey]) { self.keys = keys }
}

extension StoreBackend {
  /// Whether each write must check for an entry of a newer version under its key.
  ///
  /// If items have no versions, and no newer one has been seen, that would cost every write a read.
  var keepsNewer: Bool { codec.isVersioned || versions.hasSeenNewer }

  /// Applies the operations, as one batch.
  ///
  /// - Throws: `StorageError` with code `unsupported`, with nothing changed, if an entry of a newer version would be replaced.
  func apply(_ operations: [StorageOperation]) async throws {
    guard let engine else { return }
    try await asOrigin {
      if keepsNewer {
        try await engine.apply(operations, keepingNewerThan: codec.version)
      } else {
        try await engine.apply(operations)
      }
    }
  }

  /// The item in an entry. A newer version is recorded, so that no write replaces it from now on.
  func decoded(_ entry: StorageEntry) throws(StorageError) -> Item { try decoded(entry.data, of: entry.key) }

  /// The item in the stored bytes of an entry.
  func decoded(_ data: Data, of key: CacheKey) throws(StorageError) -> Item {
    try versions.decode(data, of: key, with: codec)
  }

  /// Records that no older version is left where steps have written or removed entries.
  func forgetOldVersions(of steps: [KeyedStep<Item>]) {
    guard codec.isVersioned else { return }
    for step in steps {
      if case .removeAll = step { versions.forgetOld() } else { versions.forgetOld(step.keys) }
    }
  }

  /// Rewrites as many of the entries as make a batch.
  func perform(
    _ rewriting: StoreRewriting, in transaction: any StorageTransaction
  ) throws -> Batch {
    let batch = try transaction.rewrite(rewriting.keys[...], codec.rewritten)
    rewriting.result.withLock { $0 = batch }
    return Batch()
  }

  /// Like ``perform(_:in:)``, for engines without transactions: nobody else may write.
  func batch(for rewriting: StoreRewriting) async throws -> Batch {
    guard let engine else { return Batch() }
    let batch = try await engine.rewriting(rewriting.keys[...], codec.rewritten)
    rewriting.result.withLock { $0 = batch }
    return Batch(operations: batch.operations, rewriting: rewriting)
  }
}
