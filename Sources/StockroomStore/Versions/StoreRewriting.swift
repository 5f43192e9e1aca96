import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A change of a store that rewrites entries of older versions as one batch.
final class StoreRewriting: Sendable {
  let keys: [CacheKey]
  /// The result, once it is known.
  let result = MutexProtected<RewritingBatch?>(nil)

  init(_ keys: [CacheKey]) { self.keys = keys }
}

extension StoreBackend {
  /// Whether each write must first check that it does not replace an entry of a newer version.
  ///
  /// The check costs a read, so it is omitted if items have no versions and the store has not read an entry of a newer one.
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

  /// Records that the entries that the steps have written or removed no longer have an older version.
  func forgetOldVersions(of steps: [KeyedStep<Item>]) {
    guard codec.isVersioned else { return }
    for step in steps {
      if case .removeAll = step { versions.forgetOld() } else { versions.forgetOld(step.keys) }
    }
  }

  /// Rewrites as many of the entries as fit in one batch.
  func perform(
    _ rewriting: StoreRewriting, in transaction: any StorageTransaction
  ) throws -> Batch {
    let batch = try transaction.rewrite(rewriting.keys[...], codec.rewritten)
    rewriting.result.withLock { $0 = batch }
    return Batch()
  }

  /// Like ``perform(_:in:)``, for engines without transactions. Returns the batch, to be applied by the caller. Writes by others in
  /// between are lost.
  func batch(for rewriting: StoreRewriting) async throws -> Batch {
    guard let engine else { return Batch() }
    let batch = try await engine.rewriting(rewriting.keys[...], codec.rewritten)
    rewriting.result.withLock { $0 = batch }
    return Batch(operations: batch.operations, rewriting: rewriting)
  }
}
