import Observation
import StockroomCore

/// Items in memory that a storage engine keeps: read like an array, changed with three methods, observed by views.
///
/// ```swift
/// let notes = try await Store<Note>(storage: .sqlite(directory: .documents(appendingPath: "Notes")))
/// try await notes.insert(Note(id: "1", text: "Milk"))
/// print(notes.items)
/// ```
///
/// A store keeps these promises, whatever the engine behind it:
///
/// - S1: Concurrent calls lose nothing. They take effect in the order in which they were made.
/// - S2: A call that throws leaves ``items`` and the engine as they were. Where the error leaves it open how much the
///   engine has done (`StorageError.Code.io` and errors of its own; any error of a batch where the engine does without
///   `EngineCapabilities.atomicBatches`), the items are read again, O(N), so that they always show what it holds.
/// - S3: A chain ended by ``Operation/run()`` is one batch in the engine and one change of ``items``.
/// - S4: Items are in the order of insertion. One with the identifier of another takes its place. A restart changes
///   neither.
/// - S5: ``events`` tell every subscriber what happened, once, in the order in which it took effect.
/// - S6: An entry that cannot be decoded hides no other; it is listed in ``unreadableEntries`` and stays stored.
/// - S7: The cost of inserting or replacing an item does not grow with the number of items, unless somebody keeps an
///   array of ``items``: the next change then copies it once. Removing moves those behind, O(N), and many with one call
///   no more than one.
/// - S8: Identifiers of any length and content work. What is too long for a key is hashed.
///
/// Items are encoded and decoded away from the main actor, many of them on all processors, and what changes many items
/// or copies them is done there too: no call holds the main actor up for longer than a few milliseconds, with a million
/// items either. Calls that come while the engine is busy are handed to it together.
///
/// A store expects to be the only one that writes to its engine, while it lives. Two stores on one engine do not see
/// each other's changes. If their items are of different types, each would remove the other's: the second one on the
/// same engine object throws `StorageError.Code.unsupported` when it loads, and so does every change, as long as the
/// first lives. Give each type of item an engine of its own.
@MainActor @Observable
public final class Store<Item: StorableItem> {
  /// How far loading has come. Begins with ``StoreLoadingState/loading(completed:total:)``.
  public internal(set) var loadingState: StoreLoadingState = .loading(completed: 0, total: nil)

  /// Whether ``items`` are what the engine holds.
  enum Knowledge {
    /// They have never been loaded.
    case none
    /// They are.
    case current
    /// They were, until a call failed of which nobody knows how much the engine has done.
    case stale
  }

  /// A call or a chain on its way.
  struct Change: Sendable {
    let steps: [StoreStep<Item>]
    let continuation: CheckedContinuation<Void, any Error>
  }

  @ObservationIgnored var table = ItemTable<Item>()
  @ObservationIgnored var knowledge = Knowledge.none
  /// The load that is under way.
  @ObservationIgnored var load: Task<Void, any Error>?
  /// Why the last load failed.
  @ObservationIgnored var loadFailure: (any Error)?
  /// Whether somebody has been told.
  @ObservationIgnored var isLoadFailureKnown = true
  /// Keeps the engine from stores of other types of items.
  @ObservationIgnored var engineUse: EngineUse?
  @ObservationIgnored var waiting: [Change] = []
  @ObservationIgnored var isCommitting = false
  /// Whether an item has been found to keep its identifier when it is encoded and decoded.
  @ObservationIgnored var isIdentityVerified = false
  let backend: StoreBackend<Item>
  let broadcaster = Broadcaster<StoreEvent<Item>>()
  let former = FormerItems<Item>()

  init(backend: StoreBackend<Item>) {
    self.backend = backend
    startLoading()
  }

  deinit {
    load?.cancel()
    // It takes long to let go of many items.
    if !table.isSmall { releaseElsewhere(exchange(&table, with: ItemTable())) }
  }

  #if DEBUG
    /// A store of these items, which keeps nothing.
    init(previewing items: [Item], identifier: @escaping @Sendable (Item) -> String) {
      backend = StoreBackend(engine: nil, codec: JSONCodec(), identifier: identifier)
      for item in items { _ = table.apply([.insert([(CacheKey(identifier: identifier(item)), item)])]) }
      knowledge = .current
      loadingState = .loaded
    }
  #endif

  /// All items, in the order of insertion (rule S4). Empty until they have been loaded.
  ///
  /// O(1): the array is not copied. Whoever keeps the array makes the next change copy it, O(N).
  public var items: [Item] {
    access(keyPath: \.items)
    return table.items
  }

  /// The entries of the engine that are not among ``items``, because they could not be decoded (rule S6). O(1), as
  /// ``items``.
  public var unreadableEntries: [UnreadableEntry] {
    access(keyPath: \.unreadableEntries)
    return table.unreadable
  }

  /// Waits until the items have been loaded.
  ///
  /// - Throws: what the engine threw when the items were read, also in the background before this was called. Nothing
  ///   has been changed by that, and the next call tries again. `CancellationError` as soon as the caller is
  ///   cancelled; the load goes on as long as the store lives.
  public func itemsHaveLoaded() async throws {
    if knowledge == .current { return }
    if load == nil, !isLoadFailureKnown, let loadFailure {
      isLoadFailureKnown = true
      throw loadFailure
    }
    let load = startLoading()
    try await load.hasEnded()
    do {
      try await load.value
    } catch {
      isLoadFailureKnown = true
      throw error
    }
  }

  /// What happens to the store, for any number of subscribers, none of whom holds up anybody (rule S5).
  ///
  /// A stream begins with the present state: `loaded` with all items, or `initialized` before they are loaded.
  /// What a subscriber has not read yet is kept for it; to limit that, use ``events(bufferingPolicy:)``.
  public var events: AsyncStream<StoreEvent<Item>> { events(bufferingPolicy: .unbounded) }

  /// What happens to the store, as ``events``, with a limit to what is kept for a slow subscriber.
  public func events(
    bufferingPolicy: AsyncStream<StoreEvent<Item>>.Continuation.BufferingPolicy
  ) -> AsyncStream<StoreEvent<Item>> {
    let present =
      knowledge == .none ? StoreEvent<Item>(.initialized, []) : StoreEvent(.loaded, table.items)
    return broadcaster.stream(startingWith: present, bufferingPolicy: bufferingPolicy)
  }

  /// Changes what there is to see, as one change for each property that somebody may observe.
  func withMutations(ofItems: Bool, ofUnreadableEntries: Bool, _ mutation: () -> Void) {
    if ofItems {
      withMutation(keyPath: \.items) {
        withMutations(ofItems: false, ofUnreadableEntries: ofUnreadableEntries, mutation)
      }
    } else if ofUnreadableEntries {
      withMutation(keyPath: \.unreadableEntries, mutation)
    } else {
      mutation()
    }
  }
}
