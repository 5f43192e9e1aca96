/// A property wrapper for the items of a ``Store``.
///
/// The property is the array of items; its projection, with `$`, is the store.
///
/// ```swift
/// @MainActor @Observable final class NotesController {
///   @ObservationIgnored @Stored var notes: [Note]
///
///   init(store: Store<Note>) { self._notes = Stored(in: store) }
///
///   func add(_ note: Note) async throws { try await self.$notes.insert(note) }
/// }
/// ```
///
/// For a store that is a static member of `Store`, write `@Stored(in: .notesStore) var notes` without an initializer. Mark
/// the property with `@ObservationIgnored` in an `@Observable` class: the store itself is observable, so that reading the
/// property observes it.
@propertyWrapper
public struct Stored<Item: StorableItem>: Sendable {
  /// The store.
  public let projectedValue: Store<Item>

  /// Wraps the items of a store.
  public init(in store: Store<Item>) { projectedValue = store }

  /// The items, in the order of insertion. Costs what ``Store/items`` costs.
  @MainActor public var wrappedValue: [Item] { projectedValue.items }
}
