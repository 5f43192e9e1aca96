import StockroomCore
import StockroomStore

// The events of a store: rule S5.

extension CheckDefinition {
  @CheckList static var storeEventChecks: [CheckDefinition] {
    Check(
      .s5, "store.events-tell-all",
      "every subscriber receives the current state, then every change once, in order and with its items"
    ) { try await checkEvents($0) }
    Check(
      .s5, "store.events-before-loading",
      "a subscriber before the items have been loaded is notified of that, and then receives them"
    ) { try await checkLoading($0) }
    Check(
      .s5, "store.events-of-concurrent-calls",
      "applying the events in order results in the final items, after any number of concurrent calls"
    ) { try await checkReplay($0) }
    Check(
      .s5, "store.events-are-facts",
      "no event of a call arrives before the engine has acknowledged the call, and a failed call has no event"
    ) { try await checkFacts($0) }
    Check(
      .s5, "store.slow-subscriber",
      "a subscriber that does not read blocks neither calls nor other subscribers"
    ) { try await checkSlowSubscriber($0) }
  }
}

/// An event that a subscriber has received.
private struct ReceivedEvent: Equatable, CustomStringConvertible {
  let operation: StoreEvent<CheckedItem>.Operation
  let items: [CheckedItem]

  init(_ operation: StoreEvent<CheckedItem>.Operation, _ items: [CheckedItem]) {
    (self.operation, self.items) = (operation, items)
  }

  var description: String { "\(operation) of \(describe(items))" }
}

/// A subscriber that records everything.
@MainActor private final class Subscriber {
  private(set) var received: [ReceivedEvent] = []
  private var task: Task<Void, Never>?

  convenience init(_ store: any CheckedStore) { self.init(store.events) }

  init(_ events: AsyncStream<StoreEvent<CheckedItem>>) {
    task = Task { [weak self] in
      for await event in events { self?.received.append(ReceivedEvent(event.operation, event.items)) }
    }
  }

  deinit { task?.cancel() }

  /// Waits until the condition holds. The limit is a number of turns since the last event.
  func wait(for what: String, until condition: ([ReceivedEvent]) -> Bool) async throws {
    var (last, turns) = (0, 0)
    while !condition(received) {
      if received.count > last { (last, turns) = (received.count, 0) }
      turns += 1
      guard turns <= 2_000 else { throw Violation("a subscriber did not receive the event for \(what)") }
      try await yieldToAllThreads()
    }
  }

  func wait(forInsertionOf item: CheckedItem) async throws {
    try await wait(for: "the insertion of \(item)") { $0.contains(ReceivedEvent(.insert, [item])) }
    await letOthersRun()
  }
}

extension Subscriber {
  /// The received events without loads that found the same items again. A store loads its items again if the feed of an
  /// engine with these capabilities reports that everything may have changed.
  func events(_ capabilities: EngineCapabilities) -> [ReceivedEvent] {
    if !capabilities.contains(.changeFeed) { return received }
    var items: [CheckedItem]?
    return received.filter { event in
      switch event.operation {
      case .initialized: items = nil
      case .loaded:
        if items == event.items { return false }
        items = event.items
      case .insert: items?.apply(.insert(event.items))
      case .remove: items?.apply(.remove(event.items))
      }
      return true
    }
  }
}

/// The item that is inserted last. When it arrives, all events have been received.
private let last = CheckedItem("last")

@MainActor private func checkEvents(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let items = (0..<8).map { CheckedItem($0) }
  let replacement = CheckedItem(1, version: 2)
  let early = [Subscriber(fixture.store), Subscriber(fixture.store)]
  try await fixture.insert(items[0])
  try await fixture.perform(.insert(Array(items[1...3])))
  try await fixture.insert(replacement)
  let late = Subscriber(fixture.store)
  try await fixture.remove(items[0])
  try await fixture.remove(items[2], items[3])
  try await fixture.run([.insert([items[5]]), .remove([replacement]), .insert([items[6], items[7]])])
  try await fixture.perform(.removeAll)
  try await fixture.insert(last)

  let before = [
    ReceivedEvent(.insert, [items[0]]), ReceivedEvent(.insert, Array(items[1...3])),
    ReceivedEvent(.insert, [replacement]),
  ]
  let after = [
    ReceivedEvent(.remove, [items[0]]), ReceivedEvent(.remove, [items[2], items[3]]),
    ReceivedEvent(.insert, [items[5]]),
    ReceivedEvent(.remove, [replacement]), ReceivedEvent(.insert, [items[6], items[7]]),
    ReceivedEvent(.remove, [items[5], items[6], items[7]]), ReceivedEvent(.insert, [last]),
  ]
  for subscriber in early {
    try await subscriber.wait(forInsertionOf: last)
    try expectReceived(
      subscriber.events(context.capabilities), [ReceivedEvent(.loaded, [])] + before + after, "a subscriber")
  }
  try await late.wait(forInsertionOf: last)
  let present = ReceivedEvent(.loaded, [items[0], replacement, items[2], items[3]])
  try expectReceived(
    late.events(context.capabilities), [present] + after, "a later subscriber")
  if context.capabilities.contains(.transactions) { try await checkEventsOfUpdates(fixture) }
}

/// The error that an update throws.
private struct Refusal: Error {}

/// Fails unless applying the events of two updates, one of which throws, results in the items of the store, and the
/// other one is reported at most once.
@MainActor private func checkEventsOfUpdates(_ fixture: StoreFixture) async throws {
  let (item, updated) = (CheckedItem("updated"), CheckedItem("updated", version: 3))
  let end = CheckedItem("end")
  try await fixture.insert(item)
  let subscriber = Subscriber(fixture.store)
  let refused = CheckedItem("updated", version: 7)
  do { try await fixture.update(item, adding: 6, refusal: Refusal()) } catch is Refusal {}
  try await fixture.update(item, adding: 2)
  try await fixture.insert(end)
  try await subscriber.wait(forInsertionOf: end)
  try expectSame(
    itemsAfter(subscriber.received), fixture.store.items, "the items that result from the events of updates")
  let count = subscriber.received.count { $0 == ReceivedEvent(.insert, [updated]) }
  // A store may load its items again instead.
  try expect(count <= 1, "a subscriber received an update \(count) times")
  try expect(
    !subscriber.received.contains { $0.items.contains(refused) },
    "a subscriber received an update whose closure threw")
}

/// The items that result from applying the events in order.
private func itemsAfter(_ events: [ReceivedEvent]) -> [CheckedItem] {
  var items: [CheckedItem] = []
  for event in events {
    switch event.operation {
    case .initialized: items = []
    case .loaded: items = event.items
    case .insert: items.apply(.insert(event.items))
    case .remove: items.apply(.remove(event.items))
    }
  }
  return items
}

private func expectReceived(_ received: [ReceivedEvent], _ expected: [ReceivedEvent], _ who: String) throws {
  if received == expected { return }
  let place =
    zip(received, expected).enumerated().first { $1.0 != $1.1 }?.offset ?? min(received.count, expected.count)
  func name(_ list: [ReceivedEvent]) -> String { place < list.count ? "\(list[place])" : "nothing" }
  throw Violation(
    "\(who) received \(received.count) events instead of \(expected.count); event \(place + 1) was "
      + "\(name(received)) instead of \(name(expected))")
}

@MainActor private func checkLoading(_ context: CheckContext) async throws {
  let before = try await context.openStore()
  let items = (0..<5).map { CheckedItem($0) }
  try await before.perform(.insert(items))
  let fixture = StoreFixture(context, before.engineUnderTest) { $0.hold(where: \.isRead) }
  let subscriber = Subscriber(fixture.store)
  try await subscriber.wait(for: "the beginning") { !$0.isEmpty }
  fixture.engine.release()
  try await fixture.load()
  try await fixture.insert(last)
  try await subscriber.wait(forInsertionOf: last)
  // Five items that were inserted at once may have equal times.
  try await fixture.expectShown(items + [last], "the items of a store that was loaded")
  let loaded = fixture.store.items.filter { $0 != last }
  try expectReceived(
    subscriber.events(context.capabilities),
    [ReceivedEvent(.initialized, []), ReceivedEvent(.loaded, loaded), ReceivedEvent(.insert, [last])],
    "a subscriber from before the items were loaded")
}

@MainActor private func checkReplay(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let subscribers = [Subscriber(fixture.store), Subscriber(fixture.store)]
  let changes = (0..<40).map { number -> CheckedChange in
    let item = CheckedItem(number % 9, version: Double(number))
    return switch number % 5 {
    case 3: .remove([item])
    case 4: .insert([item, CheckedItem(number + 100)])
    default: .insert([item])
    }
  }
  for result in await fixture.performAtOnce(changes) { try result.get() }
  try await fixture.insert(last)
  for subscriber in subscribers {
    try await subscriber.wait(forInsertionOf: last)
    try expectSame(
      itemsAfter(subscriber.received), fixture.store.items, "the items that result from the events")
  }
  try expectReceived(subscribers[0].received, subscribers[1].received, "one of two subscribers")
}

@MainActor private func checkFacts(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let subscriber = Subscriber(fixture.store)
  let item = CheckedItem(1)
  let isEarly = try await fixture.whileUnderWay {
    try await fixture.insert(item)
  } look: {
    subscriber.received.contains(ReceivedEvent(.insert, [item]))
  }
  try expect(!isEarly, "a subscriber received an insertion before the engine had acknowledged it")

  fixture.engine.failEveryCall(where: \.isWrite)
  try await fixture.expectFailure(of: "insert on an engine that fails") {
    try await fixture.insert(CheckedItem(2))
  }
  try await fixture.expectFailure(of: "remove on an engine that fails") { try await fixture.remove(item) }
  fixture.engine.clearFaults()
  try await fixture.insert(last)
  try await subscriber.wait(forInsertionOf: last)
  // A store may reload its items after a call that failed, and send an event for that.
  let received = subscriber.received.filter { $0.operation != .loaded }
  try expectReceived(
    received, [ReceivedEvent(.insert, [item]), ReceivedEvent(.insert, [last])], "a subscriber")
}

@MainActor private func checkSlowSubscriber(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let unread = fixture.store.events
  let subscriber = Subscriber(fixture.store)
  let items = (0..<24).map { CheckedItem($0 % 4, version: Double($0)) }
  let returned = MutexProtected((count: 0, isOver: false))
  let calls = Task {
    defer { returned.withLock { $0.isOver = true } }
    for item in items {
      try await fixture.insert(item)
      returned.withLock { $0.count += 1 }
    }
  }
  // The time that a slow engine or a busy machine takes does not count, because it also passes in other calls of the
  // same engine and on all threads that the store uses. Neither does the time that the store's own call spends in the
  // engine: syncing a write may take seconds, and a read none.
  var (last, turns) = (0, 0)
  while case let (count, isOver) = returned.withLock({ $0 }), !isOver {
    if count > last {
      (last, turns) = (count, 0)
      context.noteProgress()
    }
    if !context.progress.hasCallUnderWay { turns += 1 }
    guard turns <= 2_000 else {
      calls.cancel()
      throw Violation(
        "call \(count + 1) did not return while a subscriber did not read, although 2,000 calls of the "
          + "engine did"
      )
    }
    _ = try await fixture.engineUnderTest.keyCount()
    try await yieldToAllThreads()
  }
  try await calls.value
  try await subscriber.wait(forInsertionOf: items[23])
  try expectReceived(
    subscriber.events(context.capabilities),
    [ReceivedEvent(.loaded, [])] + items.map { ReceivedEvent(.insert, [$0]) },
    "a subscriber beside a slow one")
  // The events that the other subscriber has not read have been kept for it.
  let slow = Subscriber(unread)
  try await slow.wait(forInsertionOf: items[23])
  try expectReceived(
    slow.events(context.capabilities), subscriber.events(context.capabilities), "a slow subscriber")
}
