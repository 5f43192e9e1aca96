import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What a store or an object storage has recorded about the versions of the entries of its engine. A class, since the
/// structures that contain it are copied.
final class VersionLog: Sendable {
  private struct State {
    var hasSeenNewer = false
    var old: Set<CacheKey> = []
  }

  private let state = MutexProtected(State())

  /// Whether a value of a newer version has been read.
  var hasSeenNewer: Bool { state.withLock { $0.hasSeenNewer } }

  /// The number of entries that are recorded to have an older version.
  var oldCount: Int { state.withLock { $0.old.count } }

  /// The value in an entry. A newer version is recorded, so that no write replaces it from now on.
  func decode<Value: StorableItem>(
    _ data: Data, of key: CacheKey, with codec: ItemCodec<Value>
  ) throws(StorageError) -> Value {
    do throws(StorageError) {
      return try codec.decode(data, of: key)
    } catch {
      if error.isOfNewerVersion { state.withLock { $0.hasSeenNewer = true } }
      throw error
    }
  }

  /// Records that the entry has an older version, so that it can be rewritten.
  func noteOld(_ key: CacheKey) { state.withLock { _ = $0.old.insert(key) } }

  func noteOld(_ keys: some Sequence<CacheKey>) { state.withLock { $0.old.formUnion(keys) } }

  /// Records that the entries no longer have an older version, or are absent.
  func forgetOld(_ keys: some Sequence<CacheKey>) {
    state.withLock { if !$0.old.isEmpty { $0.old.subtract(keys) } }
  }

  /// Records that no entry has an older version.
  func forgetOld() { state.withLock { $0.old = [] } }

  /// Removes up to `count` of the recorded entries with older versions, and returns their keys.
  func takeOld(_ count: Int) -> [CacheKey] {
    state.withLock { state in
      let taken = Array(state.old.prefix(count))
      for key in taken { state.old.remove(key) }
      return taken
    }
  }
}
