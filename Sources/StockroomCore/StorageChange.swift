/// What has changed in a place: an element of ``StorageChanges``.
public enum StorageChange: Sendable, Hashable {
  /// These keys have been written or removed, once or several times. Never empty.
  case keys(Set<CacheKey>)
  /// Any key may have been written or removed.
  case everything
}
