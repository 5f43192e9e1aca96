#if DEBUG
  import StockroomCore

  #if canImport(FoundationEssentials)
    import FoundationEssentials
  #else
    import Foundation
  #endif

  extension Store {
    /// Creates a store for previews and tests, with these items and without an engine. Only in debug builds.
    public static func previewStore(items: [Item], cacheIdentifier: KeyPath<Item, String>) -> Store<Item> {
      // Safe to share: a key path is immutable.
      nonisolated(unsafe) let cacheIdentifier = cacheIdentifier
      return Store(previewing: items, identifier: { $0[keyPath: cacheIdentifier] })
    }

    /// Creates a store for previews and tests, with these items and without an engine. Only in debug builds.
    public static func previewStore(items: [Item]) -> Store<Item>
    where Item: Identifiable, Item.ID: LosslessStringConvertible {
      Store(previewing: items, identifier: { $0.id.description })
    }

    /// Creates a store for previews and tests, with these items and without an engine. Only in debug builds.
    public static func previewStore(items: [Item]) -> Store<Item> where Item: Identifiable, Item.ID == UUID {
      Store(previewing: items, identifier: { $0.id.uuidString })
    }
  }
#endif
