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
/// - S7: The cost of a change does not grow with the number of items, unless somebody keeps an array of ``items``: the
///   next change then copies it once.
/// - S8: Identifiers of any length and content work. What is too long for a key is hashed.
///
/// Items are encoded and decoded away from the main actor, many of them on all processors. Calls that come while
/// the engine is busy are handed to it together.
///
/// A store expects to be the only one that writes to its engine, while it lives. Two stores on one engine do not
/// see each other's changes, and a store of another type of item sees only ``unreadableEntries``.
@MainActor @Observable
public final class Store<Item: StorableItem> {
  /// How far loading has come. Begins with ``StoreLoadingState/loading(completed:total:)``.
  public private(set) var loadingState: StoreLoadingState = .loading(completed: 0, total: nil)

  /// The entries of the engine that are not among ``items``, because they could not be decoded (rule S6).
  public private(set) var unreadableEntries: [UnreadableEntry] = []

  /// Whether ``items`` are what the engine holds.
  private enum Knowledge {
    /// They have never been loaded.
    case none
    /// They are.
    case current
    /// They were, until a call failed of which nobody knows how much the engine has done.
    case stale
  }

  /// A call or a chain on its way.
  private struct Change {
    let steps: [StoreStep<Item>]
    let continuation: CheckedContinuation<Void, any Error>
  }

  @ObservationIgnored private var table = ItemTable<Item>()
  @ObservationIgnored private var knowledge = Knowledge.none
  /// The load that is under way.
  @ObservationIgnored private var load: Task<Void, any Error>?
  /// Why the last load failed.
  @ObservationIgnored private var loadFailure: (any Error)?
  /// Whether ``itemsHaveLoaded()`` has told somebody.
  @ObservationIgnored private var isLoadFailureKnown = true
  @ObservationIgnored private var waiting: [Change] = []
  @ObservationIgnored private var isCommitting = false
  private let backend: StoreBackend<Item>
  private let broadcaster = Broadcaster<StoreEvent<Item>>()

  init(backend: StoreBackend<Item>) {
    self.backend = backend
    startLoading()
  }

  deinit { load?.cancel() }

  #if DEBUG
    /// A store of these items, which keeps nothing.
    init(previewing items: [Item], identifier: @escaping @Sendable (Item) -> String) {
      backend = StoreBackend(engine: nil, codec: JSONCodec(), identifier: identifier)
      for item in items { table.insert([(CacheKey(identifier: identifier(item)), item)]) }
      knowledge = .current
      loadingState = .loaded
    }
  #endif

  /// All items, in the order of insertion (rule S4). Empty until they have been loaded.
  ///
  /// O(1): the array is not copied. The first look after a removal closes the gap, O(N). Whoever keeps the array makes
  /// the next change copy it, O(N).
  public var items: [Item] {
    access(keyPath: \.items)
    return table.items
  }

  /// Waits until the items have been loaded.
  ///
  /// - Throws: what the engine threw when the items were read, also in the background before this was called. Nothing
  ///   has been changed by that, and the next call tries again.
  public func itemsHaveLoaded() async throws {
    if knowledge == .current { return }
    if load == nil, !isLoadFailureKnown, let loadFailure {
      isLoadFailureKnown = true
      throw loadFailure
    }
    do {
      try await startLoading().value
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
}

// MARK: - Loading

extension Store {
  /// Begins to load, unless a load is under way. There is never more than one, and none while a change is.
  @discardableResult
  private func startLoading() -> Task<Void, any Error> {
    if let load { return load }
    loadingState = .loading(completed: 0, total: nil)
    let started = Task { [weak self, backend] in
      do {
        let loaded = try await backend.load { completed, total in
          self?.loadingState = .loading(completed: completed, total: total)
        }
        self?.adopt(loaded)
      } catch {
        self?.loadHasFailed(error)
        throw error
      }
    }
    load = started
    return started
  }

  private func adopt(_ loaded: LoadedItems<Item>) {
    load = nil
    knowledge = .current
    withMutation(keyPath: \.items) { table = loaded.table }
    unreadableEntries = loaded.unreadable
    loadingState = .loaded
    broadcaster.send(StoreEvent(.loaded, table.items))
  }

  private func loadHasFailed(_ error: any Error) {
    load = nil
    loadFailure = error
    isLoadFailureKnown = false
    loadingState = .failed(error)
  }

  /// Returns once the items are what the engine holds.
  ///
  /// - Throws: `StorageError`, with the code and the cause of the failure to load them.
  private func knowItems() async throws {
    // Items that were known once are read again; the caller need not hear of it.
    if knowledge == .stale { startLoading() }
    let result = await load?.result
    if knowledge == .current { return }
    var cause = loadFailure
    if case .failure(let error) = result { cause = error }
    throw StorageError(
      (cause as? StorageError)?.code ?? .io,
      "Nothing has been changed, since the items of the store could not be loaded.", underlying: cause)
  }
}

// MARK: - Changing

extension Store {
  /// Does the steps as one batch, after all calls that came before.
  ///
  /// Once it waits for its turn it is no longer cancelled, so that a cancelled call does all of its work or none.
  func perform(_ steps: [StoreStep<Item>]) async throws {
    try Task.checkCancellation()
    try await withCheckedThrowingContinuation { continuation in
      waiting.append(Change(steps: steps, continuation: continuation))
      if isCommitting { return }
      isCommitting = true
      // Keeps the store alive until everything has been handed to the engine.
      Task(priority: .userInitiated) { await commitAll() }
    }
  }

  private func commitAll() async {
    while !waiting.isEmpty {
      do {
        try await knowItems()
        await commit(takeWaiting())
      } catch {
        for change in takeWaiting() { change.continuation.resume(throwing: error) }
      }
    }
    isCommitting = false
  }

  private func takeWaiting() -> [Change] {
    defer { waiting = [] }
    return waiting
  }

  /// Has the engine do the changes as one batch, then does in memory those that it has acknowledged.
  private func commit(_ changes: [Change]) async {
    let result = await backend.commit(changes.map(\.steps), identifiers: table.hashedIdentifiers)
    var failed: [(Change, any Error)] = []
    if !result.isCertain { knowledge = .stale }
    for (change, outcome) in zip(changes, result.outcomes) {
      switch outcome {
      case .success(let steps):
        apply(steps)
        change.continuation.resume()
      case .failure(let error):
        failed.append((change, error))
      }
    }
    // Should that fail as well, the state says so, and the next change tries again.
    if !result.isCertain { _ = await startLoading().result }
    for (change, error) in failed { change.continuation.resume(throwing: error) }
  }

  /// Does the steps of one call or chain to the items, as one change, and tells the subscribers.
  private func apply(_ steps: [KeyedStep<Item>]) {
    var events: [StoreEvent<Item>] = []
    if steps.contains(where: changesItems) {
      withMutation(keyPath: \.items) { events = steps.compactMap { table.apply($0) } }
    } else {
      // It may still concern entries that are no items.
      events = steps.compactMap { table.apply($0) }
    }
    if unreadableEntries.count != table.reservedCount {
      unreadableEntries.removeAll { !table.keepsPlace(for: $0.key) }
    }
    for event in events { broadcaster.send(event) }
  }

  private func changesItems(_ step: KeyedStep<Item>) -> Bool {
    switch step {
    case .insert(let items): !items.isEmpty
    case .remove(let keys): keys.contains(where: table.contains)
    case .removeAll: table.count > 0
    }
  }
}

extension ItemTable where Item: StorableItem {
  /// Does one step, and says what happened to which items; nil if nothing did.
  fileprivate mutating func apply(_ step: KeyedStep<Item>) -> StoreEvent<Item>? {
    switch step {
    case .insert(let entries):
      insert(entries)
      return entries.isEmpty ? nil : StoreEvent(.insert, entries.map(\.item))
    case .remove(let keys):
      let removed = keys.compactMap { remove($0) }
      return removed.isEmpty ? nil : StoreEvent(.remove, removed)
    case .removeAll:
      let removed = items
      self = ItemTable()
      return removed.isEmpty ? nil : StoreEvent(.remove, removed)
    }
  }
}
