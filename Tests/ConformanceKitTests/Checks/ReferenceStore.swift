import ConformanceKit
import Foundation
import Observation
import StockroomCore
import StockroomStore

/// A correct and minimal store, which performs one call after the other. The tests derive the faulty stores from it.
@MainActor @Observable
final class ReferenceStore: CheckedStore {
  /// A deliberate fault.
  enum Fault: Sendable {
    case losesConcurrentChanges, appendsWhatItLoads
    case changesItemsFirst, believesErrors, ignoresErrors, writesBeforeLoading, skipsUnencodable
    case runsChainsInParts, changesItemsStepByStep, runsChainsAtOnce, runsChainsAgain
    case ordersByKey, ordersByLastWrite, replacesAtTheEnd
    case announcesEarly, announcesEachItem, announcesChainsBackwards, notifiesTheLastSubscriber,
      waitsForSubscribers, forgetsForSlowSubscribers
    case announcesOnlyChanges, loadsInSilence
    case hidesUnreadable, deletesUnreadable, failsOnUnreadable, stopsAtUnreadable
    case writesEverything, readsEverything, copiesItems, copiesItemsToAppend, copiesItemsToReplace
    case cutsIdentifiers, composesIdentifiers, hashesBeginnings, refusesLongIdentifiers, replacesByHash
    case followsNobody, followsWithoutRemovals, appendsWhatOthersInsert
    case updatesWithoutTransaction, updatesBeforeRefusing
    case updatesInSilence, announcesFailedUpdates, updatesByIdentifier, showsItsOwnUpdate,
      revivesWhenUpdating, believesFailedUpdates
    case runsChainsTwice, keepsUnreadableItems, takesEverythingForRemoval
  }

  private(set) var unreadableKeys: [CacheKey] = []

  @ObservationIgnored private var table = Table()
  @ObservationIgnored private var hasLoaded = false
  @ObservationIgnored private var lastCall: Task<Void, Never>?
  @ObservationIgnored private var subscribers: [AsyncStream<StoreEvent<CheckedItem>>.Continuation] = []
  private let engine: any StorageEngine
  private let fault: Fault?
  private let codec = JSONCodec()
  /// By this the engine distinguishes the changes of this store from those of others.
  private let origin = ChangeOrigin()
  @ObservationIgnored private var feed: Task<Void, Never>?

  init(_ engine: any StorageEngine, fault: Fault? = nil) {
    (self.engine, self.fault) = (engine, fault)
    // Callers that wait for the items receive the error.
    Task { try? await itemsHaveLoaded() }
  }

  isolated deinit { feed?.cancel() }

  var items: [CheckedItem] {
    access(keyPath: \.items)
    return table.items
  }

  var events: AsyncStream<StoreEvent<CheckedItem>> {
    let (stream, continuation) = AsyncStream<StoreEvent<CheckedItem>>.makeStream(
      bufferingPolicy: fault == .waitsForSubscribers || fault == .forgetsForSlowSubscribers
        ? .bufferingOldest(8) : .unbounded)
    if fault != .announcesOnlyChanges || !hasLoaded {
      continuation.yield(hasLoaded ? StoreEvent(.loaded, table.items) : StoreEvent(.initialized, []))
    }
    if fault == .notifiesTheLastSubscriber { subscribers = [] }
    subscribers.append(continuation)
    return stream
  }

  func itemsHaveLoaded() async throws { try await inTurn { try await self.loadOnce() } }

  func perform(_ change: CheckedChange) async throws { try await perform([change]) }

  func chain(_ changes: [CheckedChange]) -> @MainActor @Sendable () async throws -> Void {
    let once = Once { try await self.perform(changes) }
    if fault == .runsChainsTwice { return { try await once.runUnlessDone() } }
    if fault == .runsChainsAgain { return { try await self.perform(changes) } }
    if fault == .runsChainsAtOnce { Task { try? await once.run() } }
    return { try await once.run() }
  }

  /// Runs the work after all earlier work.
  private func inTurn(_ work: @escaping @MainActor @Sendable () async throws -> Void) async throws {
    let previous = lastCall
    let call = Task {
      await previous?.value
      try await work()
    }
    lastCall = Task { _ = await call.result }
    try await call.value
  }

  private func perform(_ changes: [CheckedChange]) async throws {
    switch fault {
    case .losesConcurrentChanges:
      if !hasLoaded { try await itemsHaveLoaded() }
      let before = table
      try await commit(changes) { self.table = before }
    case .appendsWhatItLoads:
      if !hasLoaded { return try await commit(changes) }
      fallthrough
    default:
      try await inTurn {
        try await self.loadOnce()
        try await self.commit(changes)
      }
    }
  }
}

// MARK: - Loading

extension ReferenceStore {
  private func loadOnce() async throws {
    if hasLoaded { return }
    if fault == .writesBeforeLoading {
      try? await load()
      hasLoaded = true
    } else {
      try await load()
    }
  }

  /// Reloads everything whenever others have changed something.
  private func followIfNeeded() async throws {
    guard feed == nil, fault != .followsNobody, engine.capabilities.contains(.changeFeed) else { return }
    let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
    feed = Task { [weak self, fault] in
      for await change in changes {
        if fault == .takesEverythingForRemoval, change == .everything {
          self?.forgetItems()
          continue
        }
        // If it fails, the next change loads again.
        try? await self?.inTurn { try await self?.load() }
      }
    }
  }

  private func forgetItems() { withMutation(keyPath: \.items) { table = Table() } }

  func update(_ item: CheckedItem, adding amount: Double, refusal: (any Error)?) async throws {
    try await inTurn { [self] in
      try await loadOnce()
      let (key, codec) = (keyForUpdates(of: item), codec)
      let shown = table[key].map { CheckedItem($0.id, version: $0.version + amount) }
      let kept = try fault == .revivesWhenUpdating ? codec.encode(table[key] ?? item) : nil
      if fault == .updatesWithoutTransaction || fault == .updatesBeforeRefusing {
        guard let data = try await engine.read(key: key) else { return }
        let stored = try codec.decode(CheckedItem.self, from: data)
        if fault == .updatesWithoutTransaction, let refusal { throw refusal }
        // Other calls may run between the read and the write.
        await Task.yield()
        try await commit([.insert([CheckedItem(stored.id, version: stored.version + amount)])])
        if let refusal { throw refusal }
        return
      }
      var updated: CheckedItem?
      do {
        updated = try await ChangeOrigin.$current.withValue(origin) {
          try await engine.withTransaction { transaction -> CheckedItem? in
            guard let data = try transaction.read(key: key) ?? kept else { return nil }
            let stored = try codec.decode(CheckedItem.self, from: data)
            let updated = CheckedItem(stored.id, version: stored.version + amount)
            if let refusal { throw refusal }
            try transaction.write(try codec.encode(updated), key: key)
            return updated
          }
        }
      } catch {
        if fault == .believesFailedUpdates, refusal == nil, let shown { _ = change([.insert([shown])]) }
        if fault == .announcesFailedUpdates, refusal != nil, let shown {
          await announce([announcement(of: .insert([shown]))])
        }
        throw error
      }
      if fault == .showsItsOwnUpdate, updated != nil { updated = shown }
      guard let updated else { return }
      let events = change([.insert([updated])])
      if fault != .updatesInSilence { await announce(events) }
    }
  }

  private func load() async throws {
    try await followIfNeeded()
    var entries = try await engine.readAllEntries()
    if fault == .ordersByKey { entries.sort { $0.key < $1.key } }
    if fault == .ordersByLastWrite { entries.sort { $0.updatedAt < $1.updatedAt } }
    var loaded = fault == .appendsWhatItLoads && !hasLoaded ? table : Table()
    if hasLoaded, fault == .followsWithoutRemovals { loaded = table }
    if hasLoaded, fault == .appendsWhatOthersInsert {
      var places: [CacheKey: Int] = [:]
      for (place, item) in table.items.enumerated() { places[key(of: item)] = place }
      entries.sort { places[$0.key, default: .max] < places[$1.key, default: .max] }
    }
    var unreadable: [CacheKey] = []
    for entry in entries {
      do {
        loaded.append(try codec.decode(CheckedItem.self, from: entry.data), for: entry.key)
      } catch {
        if fault == .failsOnUnreadable { throw error }
        if fault == .keepsUnreadableItems, hasLoaded, let item = table[entry.key] {
          loaded.append(item, for: entry.key)
          continue
        }
        if fault == .deletesUnreadable { try await engine.remove(key: entry.key) }
        if fault != .hidesUnreadable { unreadable.append(entry.key) }
        if fault == .stopsAtUnreadable { break }
      }
    }
    hasLoaded = true
    withMutation(keyPath: \.items) { table = loaded }
    unreadableKeys = unreadable
    if fault != .loadsInSilence { await announce([StoreEvent(.loaded, table.items)]) }
  }
}

// MARK: - Changing

extension ReferenceStore {
  private func commit(_ changes: [CheckedChange], _ acknowledged: () -> Void = {}) async throws {
    var batches = try changes.map(operations)
    if fault != .runsChainsInParts { batches = [batches.flatMap { $0 }] }
    if fault == .writesEverything, changes.count == 1, case .insert = changes[0] {
      batches[0] = try table.items.map { .write(try codec.encode($0), key: key(of: $0)) } + batches[0]
    }
    if fault == .readsEverything { _ = try await engine.allKeys() }
    var events: [StoreEvent<CheckedItem>]?
    if fault == .changesItemsFirst { events = change(changes) }
    if fault == .announcesEarly { await announce(changes.map(announcement)) }
    do {
      try await ChangeOrigin.$current.withValue(origin) {
        for batch in batches where !batch.isEmpty { try await engine.apply(batch) }
      }
    } catch  where fault == .ignoresErrors {
    } catch {
      if fault != .changesItemsFirst, fault != .believesErrors { await loadAgain() }
      throw error
    }
    acknowledged()
    let made = events ?? change(changes)
    if fault != .announcesEarly { await announce(made) }
  }

  /// Loads the items of the engine, since a failed call may have been done in part.
  private func loadAgain() async {
    do { try await load() } catch { hasLoaded = false }
  }

  /// The operations of the engine for a change.
  private func operations(for change: CheckedChange) throws -> [StorageOperation] {
    switch change {
    case .removeAll:
      return [.removeAll]
    case .remove(let items):
      return items.filter { !isStranger($0) }.map { .remove(key: key(of: $0)) }
    case .insert(let items):
      var operations: [StorageOperation] = []
      for item in items {
        let key = key(of: item)
        if isStranger(item), fault != .replacesByHash {
          throw StorageError(.unsupported, "Another item has the key \(key).")
        }
        // An item that replaces an undecodable entry is new, and therefore comes last.
        if unreadableKeys.contains(key) { operations.append(.remove(key: key)) }
        do {
          operations.append(.write(try codec.encode(item), key: key))
        } catch  where fault == .skipsUnencodable {}
      }
      return operations
    }
  }

  /// Applies the changes to the items. Returns the events.
  private func change(_ changes: [CheckedChange]) -> [StoreEvent<CheckedItem>] {
    var events: [StoreEvent<CheckedItem>] = []
    if fault == .changesItemsStepByStep {
      for change in changes { withMutation(keyPath: \.items) { events.append(apply(change)) } }
    } else {
      withMutation(keyPath: \.items) { events = changes.map(apply) }
    }
    return fault == .announcesChainsBackwards ? events.reversed() : events
  }

  private func apply(_ change: CheckedChange) -> StoreEvent<CheckedItem> {
    let event = announcement(of: change)
    switch change {
    case .removeAll:
      table = Table()
      unreadableKeys = []
    case .remove(let items):
      table.remove(items.filter { !isStranger($0) }.map(key))
    case .insert(let items):
      let isNew = items.first.map { table[key(of: $0)] == nil } ?? false
      if fault == .copiesItems || fault == (isNew ? .copiesItemsToAppend : .copiesItemsToReplace) {
        table.remove([])
      }
      for item in items {
        let key = key(of: item)
        if fault == .replacesAtTheEnd, table[key] != nil { table.remove([key]) }
        table.insert(item, for: key)
        if !unreadableKeys.isEmpty { unreadableKeys.removeAll { $0 == key } }
      }
    }
    return event
  }

  private func announcement(of change: CheckedChange) -> StoreEvent<CheckedItem> {
    switch change {
    case .removeAll: StoreEvent(.remove, table.items)
    case .insert(let items): StoreEvent(.insert, items)
    case .remove(let items): StoreEvent(.remove, items.compactMap { table[key(of: $0)] })
    }
  }

  private func announce(_ events: [StoreEvent<CheckedItem>]) async {
    for event in events {
      let isDivided = fault == .announcesEachItem && event.operation == .insert
      let parts = isDivided ? event.items.map { StoreEvent(.insert, [$0]) } : [event]
      for part in parts {
        for subscriber in subscribers {
          while case .dropped = subscriber.yield(part), fault == .waitsForSubscribers {
            try? await Task.sleep(for: .milliseconds(1))
          }
        }
      }
    }
  }
}

// MARK: - Keys

extension ReferenceStore {
  private func key(of item: CheckedItem) -> CacheKey {
    let bytes = item.id.utf8
    switch fault {
    case .cutsIdentifiers: return CacheKey(verbatim: String(decoding: bytes.prefix(511), as: UTF8.self))
    case .refusesLongIdentifiers: return CacheKey(verbatim: item.id)
    case .hashesBeginnings where bytes.count > 511:
      return CacheKey(String(decoding: bytes.prefix(600), as: UTF8.self))
    case .composesIdentifiers where (1...511).contains(bytes.count):
      return CacheKey(verbatim: item.id.precomposedStringWithCanonicalMapping)
    default: return (1...511).contains(bytes.count) ? CacheKey(verbatim: item.id) : CacheKey(item.id)
    }
  }

  private func keyForUpdates(of item: CheckedItem) -> CacheKey {
    fault == .updatesByIdentifier ? CacheKey(verbatim: item.id) : key(of: item)
  }

  /// Whether another item already has the key of this one.
  private func isStranger(_ item: CheckedItem) -> Bool {
    if fault == .replacesByHash { return false }
    return table[key(of: item)].map { !$0.hasIdentifier(of: item) } ?? false
  }
}
