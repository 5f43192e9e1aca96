import StockroomCore
import StockroomStore

/// The interface of a store to the checks of rules S1 to S10: `Store`, or another type that follows the same rules.
///
/// It keeps each item, encoded by `JSONCodec`, in a separate entry.
@MainActor
package protocol CheckedStore: AnyObject, Sendable {
  /// All items in order; observable.
  var items: [CheckedItem] { get }

  /// The keys of the entries that could not be decoded, in any order.
  var unreadableKeys: [CacheKey] { get }

  /// An event with the present state, followed by later events.
  var events: AsyncStream<StoreEvent<CheckedItem>> { get }

  /// Waits until the items have been loaded. Retries if loading has failed before.
  func itemsHaveLoaded() async throws

  /// Makes one call.
  func perform(_ change: CheckedChange) async throws

  /// Adds to the version of the stored item, as one atomic step. Throws the error that `refusal` returns, if any, after
  /// changing the item.
  func update(_ item: CheckedItem, adding amount: Double, refusal: (any Error)?) async throws

  /// A chain of changes. It only runs when the returned closure is called, which calls `run()`.
  func chain(_ changes: [CheckedChange]) async throws -> @MainActor @Sendable () async throws -> Void
}

/// A change of a store.
package enum CheckedChange: Sendable {
  case insert([CheckedItem])
  case remove([CheckedItem])
  case removeAll
}

extension CheckedChange: CustomStringConvertible {
  /// The call, for sentences.
  package var description: String {
    switch self {
    case .insert(let items): items.count == 1 ? "insert of \(items[0])" : "insert of \(items.count) items"
    case .remove(let items): items.count == 1 ? "remove of \(items[0])" : "remove of \(items.count) items"
    case .removeAll: "removeAll"
    }
  }
}

/// The items that the checks store. Two items are equal if their versions and the bytes of their identifiers are.
package struct CheckedItem: Codable, Sendable, Hashable {
  /// The identifier of the item.
  package let id: String
  /// The part that changes when an item is replaced. JSON cannot represent values that are not finite.
  package let version: Double

  package init(_ id: String, version: Double = 1) { (self.id, self.version) = (id, version) }

  /// One of 100,003 items whose identifiers are not in numeric order.
  package init(_ number: Int, version: Double = 1) {
    self.init("item \(number * 61_681 % 100_003)", version: version)
  }

  /// An item that cannot be encoded.
  package static func unencodable(_ id: String) -> CheckedItem { CheckedItem(id, version: .nan) }

  package static func == (one: CheckedItem, other: CheckedItem) -> Bool {
    one.version == other.version && one.hasIdentifier(of: other)
  }

  package func hash(into hasher: inout Hasher) {
    for byte in id.utf8 { hasher.combine(byte) }
    hasher.combine(version)
  }

  /// Whether both items have the same identifier, so that one replaces the other.
  package func hasIdentifier(of other: CheckedItem) -> Bool { id.utf8.elementsEqual(other.id.utf8) }
}

extension CheckedItem: CustomStringConvertible {
  /// The identifier, or its beginning, and the version.
  package var description: String {
    let length = id.utf8.count
    let shown = length > 40 ? "\(id.prefix(20).debugDescription)… (\(length) bytes)" : id.debugDescription
    return "\(shown) in version \(version)"
  }
}

extension [CheckedItem] {
  /// Changes the array in the same way as a store changes its items (rule S4).
  package mutating func apply(_ change: CheckedChange) {
    switch change {
    case .insert(let items):
      for item in items {
        if let index = firstIndex(where: item.hasIdentifier) { self[index] = item } else { append(item) }
      }
    case .remove(let items): removeAll { item in items.contains(where: item.hasIdentifier) }
    case .removeAll: self = []
    }
  }
}

/// `Store`, as apps use it.
final class StoreUnderTest: CheckedStore {
  private let store: Store<CheckedItem>

  init(_ engine: any StorageEngine) {
    store = Store(loadingInBackground: engine, cacheIdentifier: \.id)
  }

  var items: [CheckedItem] { store.items }

  var unreadableKeys: [CacheKey] { store.unreadableEntries.map(\.key) }

  var events: AsyncStream<StoreEvent<CheckedItem>> { store.events }

  func itemsHaveLoaded() async throws { try await store.itemsHaveLoaded() }

  func perform(_ change: CheckedChange) async throws {
    switch change {
    case .insert(let items):
      if items.count == 1 { try await store.insert(items[0]) } else { try await store.insert(items) }
    case .remove(let items):
      if items.count == 1 { try await store.remove(items[0]) } else { try await store.remove(items) }
    case .removeAll: try await store.removeAll()
    }
  }

  func update(_ item: CheckedItem, adding amount: Double, refusal: (any Error)?) async throws {
    try await store.update(item) { item in
      item = CheckedItem(item.id, version: item.version + amount)
      if let refusal { throw refusal }
    }
  }

  func chain(_ changes: [CheckedChange]) async throws -> @MainActor @Sendable () async throws -> Void {
    var operation: Store<CheckedItem>.Operation?
    for change in changes {
      let chained: Store<CheckedItem>.Operation
      switch (operation, change) {
      case (nil, .insert(let items)): chained = try await store.insert(items)
      case (nil, .remove(let items)): chained = try await store.remove(items)
      case (nil, .removeAll): chained = try await store.removeAll()
      case (let operation?, .insert(let items)): chained = operation.insert(items)
      case (let operation?, .remove(let items)): chained = operation.remove(items)
      case (let operation?, .removeAll): chained = operation.removeAll()
      }
      operation = chained
    }
    return { [operation] in try await operation?.run() }
  }
}
