import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The size and a hash of a value, to recognize the value without retaining it.
struct ValueDigest: Equatable, Sendable {
  private let size: Int
  private let digest: Int

  init(_ data: Data) {
    size = data.count
    // `Hasher` has a random seed in each process, so that two values with the same digest cannot be constructed in advance.
    var hasher = Hasher()
    data.withUnsafeBytes { hasher.combine(bytes: $0) }
    digest = hasher.finalize()
  }
}

/// Digests of the values that a store has written last, by which it recognizes them.
///
/// The feed of an engine does not report the changes of this store, but it reports a change that others have made under the
/// same key just before. The store then reads the key and finds its own value, for which it has already sent an event.
struct OwnWrites: Sendable {
  /// By key; nil if the key has been removed, until these changes are added to earlier ones.
  private var digests: [CacheKey: ValueDigest?] = [:]
  private var forgetsEarlier = false

  /// The maximum number of digests. A change that would exceed it drops all earlier digests. An event may be sent twice for
  /// a change whose digests have been dropped, or for a change of more entries than this.
  private static let limit = 4_096

  /// Whether the value that the store has written last under the key has this digest.
  func contains(_ digest: ValueDigest, of key: CacheKey) -> Bool { digests[key] == .some(.some(digest)) }

  /// Adds operations, in order. O(bytes).
  mutating func add(_ operations: [StorageOperation]) {
    if digests.count + operations.count > Self.limit { (digests, forgetsEarlier) = ([:], true) }
    if operations.count > Self.limit { return }
    for operation in operations {
      switch operation {
      case .write(let data, let key): digests[key] = .some(.some(ValueDigest(data)))
      case .remove(let key): digests[key] = .some(.none)
      case .removeAll: (digests, forgetsEarlier) = ([:], true)
      }
    }
  }

  /// Adds later changes. O(their number).
  mutating func add(_ later: OwnWrites) {
    if later.forgetsEarlier || digests.count + later.digests.count > Self.limit { digests = [:] }
    for (key, digest) in later.digests {
      if let digest { digests[key] = .some(.some(digest)) } else { forget(key) }
    }
  }

  /// Records that others have changed the value of the key.
  mutating func forget(_ key: CacheKey) { digests.removeValue(forKey: key) }
}
