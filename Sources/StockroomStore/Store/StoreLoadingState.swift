import StockroomCore

/// The progress of a ``Store`` in loading its items.
public enum StoreLoadingState: Sendable {
  /// `completed` items of `total` have been decoded. The total is nil while the engine is reading.
  case loading(completed: Int, total: Int?)
  /// All items have been loaded.
  case loaded
  /// Loading failed. ``Store/itemsHaveLoaded()`` throws the error once, and loads again when it is called
  /// after that.
  case failed(any Error)
}

/// An entry of an engine that a ``Store`` could not decode (rule S6).
///
/// It stays in the engine until an item with its identifier is inserted or removed, or until `removeAll()`.
/// An entry of a newer version stays until it is removed: inserting an item with its identifier throws.
public struct UnreadableEntry: Sendable {
  /// The key of the entry.
  public let key: CacheKey
  /// The error, with code `StorageError.Code.decodingFailed`. If a program that supports a newer version has
  /// written the entry, the code is `StorageError.Code.unsupported`, and the `underlying` error is
  /// ``NewerVersionError``.
  public let error: StorageError
}
