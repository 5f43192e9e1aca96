import StockroomCore

/// How far a ``Store`` has come with loading its items.
public enum StoreLoadingState: Sendable {
  /// So many items have been decoded, of so many. The total is nil while the engine is still reading.
  case loading(completed: Int, total: Int?)
  /// The items are those that the engine holds.
  case loaded
  /// The engine could not read them. ``Store/itemsHaveLoaded()`` throws why if nobody has been told yet; after that it
  /// tries again.
  case failed(any Error)
}

/// An entry of an engine that a ``Store`` could not turn into an item (rule S6).
///
/// It is still in the engine, under its key, until an item with its identifier is inserted or removed, or the store is
/// emptied.
public struct UnreadableEntry: Sendable {
  /// The name of the entry.
  public let key: CacheKey
  /// Why it is no item: code `StorageError.Code.decodingFailed`.
  public let error: StorageError
}
