import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What distinguishes one value from another, without holding it.
struct ValueDigest: Equatable, Sendable {
  private let size: Int
  private let digest: Int

  init(_ data: Data) {
    size = data.count
    // The hasher has another key in each process, so that nobody can prepare two values with one digest.
    var hasher = Hasher()
    data.withUnsafeBytes { hasher.combine(bytes: $0) }
    digest = hasher.finalize()
  }
}

/// The values that a store has written last, and shows.
///
/// The feed of an engine leaves out what the store has changed, but not what others have changed under the same key just before. Then
/// the store reads its own value, which it has reported already.
struct OwnWrites: Sendable {
  /// Nil for what has been removed, in changes that are to be added to others.
  private var digests: [CacheKey: ValueDigest?] = [:]
  private var forgetsEarlier = false

  /// How many are noted at most: those of the latest changes. Of an earlier one, or of one with more, an event may be reported twice.
  private static let limit = 4_096

  /// Whether this is what the store has written last under the key.
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

  /// Notes that others have changed what is under the key.
  mutating func forget(_ key: CacheKey) { digests.removeValue(forKey: key) }
}
