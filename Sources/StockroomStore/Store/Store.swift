import Observation
import StockroomCore

/// An observable collection of items in memory that a storage engine persists.
///
/// ```swift
/// let notes = try await Store<Note>(storage: .sqlite(directory: .documents(appendingPath: "Notes")))
/// try await notes.insert(Note(id: "1", text: "Milk"))
/// print(notes.items)
/// ```
///
/// With any engine, a store has these properties:
///
/// - S1: No concurrent change is lost. Calls take effect in the order in which they were made.
/// - S2: A call that throws leaves ``items`` and the engine unchanged, with three exceptions, after which the engine may have
///   changed: `outcomeUnknown`, which only an engine on a server throws; `io`, if the engine has made the change but could not
///   make it survive a power cut; and any error of a batch in an engine without `EngineCapabilities.atomicBatches`. After
///   these errors, and after `corrupted`, codes of your own engine and errors of other types, the items are loaded again, O(N),
///   so that they always match the engine.
/// - S3: A chain ended by ``Operation/run()`` is one batch in the engine and one change of ``items``.
/// - S4: Items are in the order of insertion. An item with the identifier of an existing one replaces it in place. A
///   restart preserves the order.
/// - S5: ``events`` reports every change to every subscriber, once, in the order in which the changes took effect. Exception: the
///   store remembers at most 4,096 of its latest writes. If others change an item just before this store writes it, and the store
///   no longer remembers that write when it reads the change, its event may be reported twice.
/// - S6: An entry that cannot be decoded does not affect other entries; it is listed in ``unreadableEntries``
///   and stays stored. An entry that a newer program has stored is not replaced either: see
///   <doc:ChangingTypes>.
/// - S7: The cost of inserting or replacing an item does not grow with the number of items, unless a copy of
///   ``items`` is retained: the next change then copies the array once, and the keys too if the change is
///   made off the main actor and inserts or removes. Removing items moves those after them, O(N), once for
///   each call.
/// - S8: Identifiers may have any length and content. An identifier that is empty or too long for a key is hashed.
///
/// Items are encoded and decoded off the main actor, in parallel, and changes that affect or copy many items are made
/// there too: no call blocks the main actor for longer than a few milliseconds, even with a million items. Calls that are
/// made while the engine is busy are combined into one batch.
///
/// - S9: Changes by others (other stores in front of the engine, other processes, other programs) appear in ``items``, in the
///   engine's order and with events, if the engine has `EngineCapabilities.changeFeed`. An engine of your own must also support
///   `ChangeOrigin`. For a store that is alone on its engine, this costs a hash of each value that it writes. If subscribing to
///   the feed fails, such as on a full disk, the store retries with each of its own changes, and by itself, at most a minute
///   after the last attempt. Only the built-in engines number their entries in the order of insertion. With any other engine,
///   and with files that were copied into a `DiskStorageEngine` with the same time, an insertion or replacement by others makes
///   the store load all items again, O(N), and is reported as `loaded`.
/// - S10: ``update(_:_:)`` and ``modify(_:_:)`` read, change and write an item as one step, so that no change by this or another
///   process is lost. ``modify(_:_:)`` can also insert or remove the item.
///
/// Queries show some of the items, sorted, and follow the changes of the store:
/// ``query(where:sortedBy:limit:)``. With an ``undoLimit``, ``undo()`` and ``redo()`` reverse the last calls.
///
/// Stores of different types of items on one engine would treat each other's entries as their own. Therefore,
/// loading the second one on the same engine object throws `StorageError.Code.unsupported`, and so does every
/// change, as long as the first one exists. Open a separate engine for each type of item.
@MainActor @Observable
public final class Store<Item: StorableItem> {
  /// The progress of loading. Begins with ``StoreLoadingState/loading(completed:total:)``.
  public internal(set) var loadingState: StoreLoadingState = .loading(completed: 0, total: nil)

  /// Whether ``items`` match the engine.
  enum ItemsState {
    /// They have never been loaded.
    case notLoaded
    /// They match.
    case current
    /// They may not match, since a call failed with an unknown outcome.
    case stale
  }

  /// A call or a chain that waits for the engine.
  struct Change: Sendable {
    let steps: [StoreStep<Item>]
    let continuation: CheckedContinuation<Void, any Error>
  }

  @ObservationIgnored var table = ItemTable<Item>()
  @ObservationIgnored var itemsState = ItemsState.notLoaded
  /// The load in progress.
  @ObservationIgnored var load: Task<Void, any Error>?
  /// The error of the last load, until it has been thrown to a caller.
  @ObservationIgnored var loadFailure: (any Error)?
  /// Excludes stores of other types of items from the engine.
  @ObservationIgnored var engineClaim: EngineClaim?
  /// Whether the store is notified of changes by others, if the engine has a feed of them.
  @ObservationIgnored var isFollowing = false
  /// The subscription in progress.
  @ObservationIgnored var subscription: Task<Void, Never>?
  /// How long a load waits for the subscription.
  @ObservationIgnored var subscriptionTimeout = Duration.seconds(10)
  /// How long the store waits before it subscribes again after a failure.
  @ObservationIgnored var resubscriptionDelay = Duration.seconds(1)
  /// Whether others may have changed something while the engine could not be watched.
  @ObservationIgnored var mayHaveMissedChanges = false
  /// Receives the changes of others.
  @ObservationIgnored var feed: Task<Void, Never>?
  @ObservationIgnored var pendingChange = PendingChange.none
  @ObservationIgnored var ownWrites = OwnWrites()
  @ObservationIgnored var waiting = Queue<Change>()
  @ObservationIgnored var isCommitting = false
  /// Callers that wait until the next changes are taken.
  @ObservationIgnored var batchWaiters: [CheckedContinuation<Void, Never>] = []
  /// Whether it has been verified that the identifier of an item survives encoding.
  @ObservationIgnored var isIdentityVerified = false
  @ObservationIgnored var history = UndoHistory()
  #if canImport(Darwin)
    @ObservationIgnored var undoRegistration: UndoRegistration?
  #endif
  @ObservationIgnored var queries = StoreQueries<Item>()
  /// The progress of rewriting items of older versions. See <doc:ChangingTypes>.
  public internal(set) var rewritingState = StoreRewritingState.notStarted
  /// The last rewriting that was started, until it has ended.
  @ObservationIgnored var rewriting: Task<Void, Never>?
  /// The number of the last rewriting, to distinguish it from an earlier one that was stopped and has not ended yet.
  @ObservationIgnored var rewritingNumber = 0
  let backend: StoreBackend<Item>
  let broadcaster = Broadcaster<StoreEvent<Item>>()
  let deferredRelease = DeferredRelease<Item>()

  init(backend: StoreBackend<Item>) {
    self.backend = backend
    startLoading()
  }

  deinit {
    load?.cancel()
    subscription?.cancel()
    feed?.cancel()
    rewriting?.cancel()
    // Releasing many items takes long.
    if !table.isSmall { releaseInBackground(exchange(&table, with: ItemTable())) }
    if history.entryCount > 1_000 { releaseInBackground(exchange(&history, with: UndoHistory())) }
  }

  #if DEBUG
    /// A store of these items without an engine.
    init(previewing items: [Item], identifier: @escaping @Sendable (Item) -> String) {
      backend = StoreBackend(engine: nil, codec: JSONCodec(), identifier: identifier)
      for item in items { _ = table.apply([.insert([(CacheKey(identifier: identifier(item)), item)])]) }
      itemsState = .current
      loadingState = .loaded
    }
  #endif

  /// All items, in the order of insertion (rule S4). Empty until they have been loaded.
  ///
  /// O(1): the array is not copied. While a copy of it is retained, the next change has to copy the elements, O(N).
  public var items: [Item] {
    access(keyPath: \.items)
    return table.items
  }

  /// The item with this identifier, if there is one. O(log N).
  @_disfavoredOverload
  public subscript(_ identifier: String) -> Item? { item(identifier: identifier) }

  /// Whether there is an item with this identifier. O(1).
  @_disfavoredOverload
  public func contains(id identifier: String) -> Bool { containsItem(identifier: identifier) }

  func item(identifier: String) -> Item? {
    access(keyPath: \.items)
    return table.item(identifiedBy: CacheKey(identifier: identifier))
  }

  func containsItem(identifier: String) -> Bool {
    access(keyPath: \.items)
    return table.containsItem(identifiedBy: CacheKey(identifier: identifier))
  }

  /// The entries of the engine that could not be decoded, and therefore are not in ``items`` (rule S6). O(1),
  /// as ``items``.
  public var unreadableEntries: [UnreadableEntry] {
    access(keyPath: \.unreadableEntries)
    return table.unreadable
  }

  /// Waits until the items have been loaded.
  ///
  /// - Throws: what the engine threw when the items were read, even if the load failed before this call; the next call retries.
  ///   `CancellationError` as soon as the caller is cancelled; the load continues.
  public func itemsHaveLoaded() async throws {
    if itemsState == .current { return }
    if load == nil, let failure = loadFailure {
      loadFailure = nil
      throw failure
    }
    let load = startLoading()
    try await load.waitUntilEnded()
    do {
      try await load.value
    } catch {
      loadFailure = nil
      throw error
    }
  }

  /// A stream of the changes of the store, for any number of subscribers. A slow subscriber does not delay the store or other
  /// subscribers (rule S5).
  ///
  /// A stream begins with the current state: `loaded` with all items, or `initialized` before they are
  /// loaded. Events that a subscriber has not read are buffered; to limit the buffer, use
  /// ``events(bufferingPolicy:)``.
  public var events: AsyncStream<StoreEvent<Item>> { events(bufferingPolicy: .unbounded) }

  /// Like ``events``, with a limit on the buffer of a slow subscriber.
  public func events(
    bufferingPolicy: AsyncStream<StoreEvent<Item>>.Continuation.BufferingPolicy
  ) -> AsyncStream<StoreEvent<Item>> {
    let present =
      itemsState == .notLoaded ? StoreEvent<Item>(.initialized, []) : StoreEvent(.loaded, table.items)
    return broadcaster.stream(startingWith: present, bufferingPolicy: bufferingPolicy)
  }

  /// Sends the events of a change. Call it immediately after the change of the items, before other observers
  /// are notified: they may subscribe, and their streams begin with items that include the change.
  func send(_ events: [StoreEvent<Item>]) {
    var dropped: [StoreEvent<Item>] = []
    for event in events { dropped += broadcaster.send(event) }
    // Releasing many items takes long.
    if dropped.reduce(0, { $0 + $1.items.count }) > 1_000 {
      releaseInBackground(exchange(&dropped, with: []))
    }
  }

  /// Performs a mutation, and notifies the observers of each property that it affects once.
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
