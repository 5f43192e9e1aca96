/// What has changed in a place: an element of ``StorageChanges``.
public enum StorageChange: Sendable, Hashable {
  /// These keys have been written or removed, once or several times. Never empty.
  case keys(Set<CacheKey>)
  /// Any key may have been written or removed.
  case everything
}

extension StorageChange {
  /// The keys that at least one of the two changes contains.
  func union(_ other: StorageChange?) -> StorageChange {
    switch (self, other) {
    case (_, nil): self
    case (.keys(let keys), .keys(let others)?): .keys(keys.union(others))
    default: .everything
    }
  }
}
