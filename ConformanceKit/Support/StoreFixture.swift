import StockroomCore
import StockroomTestSupport
import StockroomStore

/// A store, its engine, and between them an engine that counts calls and fails on command.
@MainActor
struct StoreFixture {
  let context: CheckContext
  let engineUnderTest: EngineUnderTest
  let engine: FailingStorageEngine
  let store: any CheckedStore

  /// Puts a store in front of an engine. Its items need not have been loaded yet.
  init(
    _ context: CheckContext, _ engineUnderTest: EngineUnderTest,
    prepare: (FailingStorageEngine) -> Void = { _ in }
  ) {
    self.context = context
    self.engineUnderTest = engineUnderTest
    engine = FailingStorageEngine(engineUnderTest)
    prepare(engine)
    store = context.makeStore(engine)
  }

  /// A fresh store on the same place: on an engine that has been reopened, if it is a persistent one.
  func restarted() async throws -> StoreFixture {
    let isPersistent = context.capabilities.contains(.persistent)
    let fixture = StoreFixture(
      context, isPersistent ? try await context.reopen(engineUnderTest) : engineUnderTest)
    try await fixture.load()
    return fixture
  }
}

extension CheckContext {
  /// A store with nothing in it, in front of an engine.
  @MainActor func openStore() async throws -> StoreFixture {
    let fixture = StoreFixture(self, try await open())
    try await fixture.load()
    return fixture
  }
}

// MARK: - Calling the store

extension StoreFixture {
  func load() async throws { try await call("itemsHaveLoaded()") { try await store.itemsHaveLoaded() } }

  func insert(_ items: CheckedItem...) async throws { try await perform(.insert(items)) }

  func remove(_ items: CheckedItem...) async throws { try await perform(.remove(items)) }

  /// Makes one call.
  func perform(_ change: CheckedChange) async throws {
    try await call("\(change)") { try await store.perform(change) }
  }

  /// Runs a chain.
  func run(_ changes: [CheckedChange]) async throws {
    try await call("a chain of \(changes)") { try await store.chain(changes)() }
  }

  private func call(_ name: String, _ body: () async throws -> Void) async throws {
    do { try await body() } catch { throw CallFailure(call: name, error: error) }
    // An engine whose calls take long has many of them in a check.
    context.noteProgress()
  }

  /// Makes all calls before the engine has answered any of them: neither calls of the kind that is held, nor others
  /// that come after those.
  func performAtOnce(
    _ changes: [CheckedChange],
    holding isHeld: @escaping @Sendable (FailingStorageEngine.Call) -> Bool = \.isWrite
  ) async -> [Result<Void, any Error>] {
    engine.hold(where: isHeld)
    let started = Counter()
    let tasks = changes.map { change in
      Task {
        started.count += 1
        try await perform(change)
      }
    }
    while started.count < changes.count { await Task.yield() }
    await letOthersRun()
    engine.release()
    var results: [Result<Void, any Error>] = []
    for task in tasks { results.append(await task.result) }
    return results
  }

  /// Makes a call, and looks when it has reached the engine, before the engine has done anything. Returns what was seen.
  func whileUnderWay<Seen>(
    _ call: @escaping @MainActor @Sendable () async throws -> Void, look: () -> Seen
  ) async throws -> Seen {
    let isOver = Flag()
    engine.resetCalls()
    engine.hold(where: \.isWrite)
    defer { engine.release() }
    let task = Task {
      defer { isOver.set() }
      try await call()
    }
    while !isOver.isSet, !engine.calls.contains(where: \.isWrite) {
      try await Task.sleep(for: .milliseconds(1))
    }
    await letOthersRun()
    let seen = look()
    engine.release()
    try await task.value
    return seen
  }

  /// Fails if the call succeeds.
  func expectFailure(of call: String, _ body: () async throws -> Void) async throws {
    do { try await body() } catch { return }
    throw Violation("\(call) returned instead of throwing")
  }
}

// MARK: - Looking at store and engine

extension StoreFixture {
  /// Fails unless its items are these, and the engine holds them in this order.
  func expectItems(_ expected: [CheckedItem], _ when: String) async throws {
    try await expectShown(expected, "the items \(when)")
    try expectSame(try await storedItems(likely: expected), expected, "the entries in the engine \(when)")
  }

  /// Fails unless its items are these: see ``shows(_:)``.
  func expectShown(_ expected: [CheckedItem], _ what: @autoclosure () -> String) async throws {
    if try await shows(expected) { return }
    try expectSame(store.items, expected, what())
  }

  /// Whether its items are these, in this order. Those that it has loaded it may have in another one, as far as the engine cannot
  /// distinguish that from the right one: see ``storedItems(likely:)``.
  func shows(_ expected: [CheckedItem]) async throws -> Bool {
    let items = store.items
    if items == expected { return true }
    if context.capabilities.contains(.atomicBatches) { return false }
    if items.count != expected.count || Set(items) != Set(expected) { return false }
    guard try await storedItems(likely: items) == items else { return false }
    return try await storedItems(likely: expected) == expected
  }

  /// Fails unless its items are what the engine holds, and those of a new store. Returns that store.
  @discardableResult
  func expectAgreement(_ when: String) async throws -> StoreFixture {
    try await expectItems(store.items, when)
    let fresh = try await restarted()
    try expectSame(
      try await fresh.storedItems(likely: store.items), store.items,
      "the entries in the engine after reopening it \(when)")
    try await fresh.expectItems(fresh.store.items, "of a new store \(when)")
    return fresh
  }

  /// The items that the engine holds, in the order of its entries.
  ///
  /// An engine that makes a batch of single writes cannot distinguish two of them if they happened between two ticks
  /// of the clock; these are in the order that is likely.
  func storedItems(likely: [CheckedItem]) async throws -> [CheckedItem] {
    let codec = JSONCodec()
    let stored = try await engineUnderTest.readAllEntries().compactMap { entry in
      // Entries that cannot be decoded are no items.
      (try? codec.decode(CheckedItem.self, from: entry.data)).map { (item: $0, time: entry.createdAt) }
    }
    context.noteProgress()
    if context.capabilities.contains(.atomicBatches) { return stored.map(\.item) }
    var rank: [CheckedItem: Int] = [:]
    for (index, item) in likely.enumerated() { rank[item] = index }
    return stored.enumerated().sorted { one, other in
      if one.element.time != other.element.time { return one.offset < other.offset }
      return rank[one.element.item, default: one.offset] < rank[other.element.item, default: other.offset]
    }.map(\.element.item)
  }
}

/// Fails unless the items are those expected, in that order.
func expectSame(_ items: [CheckedItem], _ expected: [CheckedItem], _ what: @autoclosure () -> String) throws {
  if items == expected { return }
  let count =
    items.count == expected.count ? "" : " were \(items.count) instead of \(expected.count), and"
  let place =
    zip(items, expected).enumerated().first { $1.0 != $1.1 }?.offset ?? min(items.count, expected.count)
  func name(_ items: [CheckedItem]) -> String { place < items.count ? "\(items[place])" : "none" }
  throw Violation("\(what())\(count) had \(name(items)) instead of \(name(expected)) at index \(place)")
}
