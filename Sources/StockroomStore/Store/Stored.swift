/// A property that is the items of a ``Store``.
///
/// The property is the array; with `$` in front of it, it is the store.
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
/// For a store that is a static member of `Store`, `@Stored(in: .notesStore) var notes` does without an
/// initialiser. Mark the property with `@ObservationIgnored` in an `@Observable` class: the store is observed by
/// itself, so that whoever reads the property is told of changes.
@propertyWrapper
public struct Stored<Item: StorableItem>: Sendable {
  /// The store.
  public let projectedValue: Store<Item>

  /// The items of a store.
  public init(in store: Store<Item>) { projectedValue = store }

  /// The items, in the order of insertion. Costs what ``Store/items`` costs.
  @MainActor public var wrappedValue: [Item] { projectedValue.items }
}
