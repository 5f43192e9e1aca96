#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// One step of a batch for ``StorageEngine/apply(_:)``.
public enum StorageOperation: Sendable, Hashable {
  /// Store the value under the key, replacing any existing value.
  case write(Data, key: CacheKey)
  /// Remove the entry under the key, if there is one.
  case remove(key: CacheKey)
  /// Remove all entries.
  case removeAll
}

extension Sequence<StorageOperation> {
  /// Throws unless every key in the batch is valid, so that a batch is refused before any of it is written (rule W4).
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``, for the first invalid key.
  @inlinable public func validate() throws {
    for operation in self {
      switch operation {
      case .write(_, let key), .remove(let key): try key.validate()
      case .removeAll: break
      }
    }
  }
}
