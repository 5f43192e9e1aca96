#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// One step of a batch for ``StorageEngine/apply(_:)``.
public enum StorageOperation: Sendable, Hashable {
  /// Make this the value of the key, whether or not it had one.
  case write(Data, key: CacheKey)
  /// Make the key absent, whether or not it had a value.
  case remove(key: CacheKey)
  /// Make every key absent.
  case removeAll
}

extension Sequence<StorageOperation> {
  /// Throws unless every key in the batch is valid, so that a batch is refused before any of it is done (W4).
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``, for the first key that is not.
  @inlinable public func validate() throws {
    for operation in self {
      switch operation {
      case .write(_, let key), .remove(let key): try key.validate()
      case .removeAll: break
      }
    }
  }
}
