import StockroomCore
import StockroomTestSupport
import StockroomStore

/// A store, its engine, and an engine in between that counts calls and fails on command.
@MainActor
struct StoreFixture {
  let context: CheckContext
  let engineUnderTest: EngineUnderTest
  let engine: FailingStorageEngine
  let store: any CheckedStore

  /// Puts a store in front of an engine. Its items may not have been loaded yet.
  init(
    _ context: CheckContext, _ engineUnderTest: EngineUnderTest,
    prepare: (FailingStorageEngine) -> Void = { _ in }
  ) {
    self.context = context
    self.engineUnderTest = engineUnderTest
    engine = FailingStorageEngine(engineUnderTest.withItsOwnErrors)
    prepare(engine)
    store = context.makeStore(engine)
  }

  /// A new store on the same place. If the engine is persistent, it is reopened.
  func restarted() async throws -> StoreFixture {
    let isPersistent = context.capabilities.contains(.persistent)
    let fixture = StoreFixture(
      context, isPersistent ? try await context.reopen(engineUnderTest) : engineUnderTest)
    try await fixture.load()
    return fixture
  }
}

extension CheckContext {
  /// An empty store in front of an engine.
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

  /// Updates one item. If the update is to throw an error, it is thrown as it is.
  func update(_ item: CheckedItem, adding amount: Double, refusal: (any Error)? = nil) async throws {
    do {
      try await call("an update of \(item)") {
        try await store.update(item, adding: amount, refusal: refusal)
      }
    } catch let failure as CallFailure where refusal != nil {
      throw failure.error
    }
  }

  /// Runs a chain.
  func run(_ changes: [CheckedChange]) async throws {
    try await call("a chain of \(changes)") { try await store.chain(changes)() }
  }

  private func call(_ name: String, _ body: () async throws -> Void) async throws {
    do { try await body() } catch { throw CallFailure(call: name, error: error) }
    // With a slow engine, a check with many calls takes long.
    context.noteProgress()
  }

  /// Makes all calls of the store at once. Until all have begun, the engine holds every call for which the closure
  /// returns true.
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

  /// Makes a call, and calls `look` after the call has reached the engine and before the engine performs it. Returns
  /// the result of `look`.
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

// MARK: - Checking the store and the engine

extension StoreFixture {
  /// Fails unless the store has exactly these items, and the engine holds them in this order.
  func expectItems(_ expected: [CheckedItem], _ when: String) async throws {
    try await expectShown(expected, "the items \(when)")
    try expectSame(try await storedItems(likely: expected), expected, "the entries in the engine \(when)")
  }

  /// Fails unless the store has exactly these items: see ``shows(_:)``.
  func expectShown(_ expected: [CheckedItem], _ what: @autoclosure () -> String) async throws {
    if try await shows(expected) { return }
    try expectSame(store.items, expected, what())
  }

  /// Whether the store has exactly these items, in this order. The order of loaded items may differ as far as the
  /// engine cannot distinguish it from the right one: see ``storedItems(likely:)``.
  func shows(_ expected: [CheckedItem]) async throws -> Bool {
    let items = store.items
    if items == expected { return true }
    if context.capabilities.contains(.atomicBatches) { return false }
    if items.count != expected.count || Set(items) != Set(expected) { return false }
    guard try await storedItems(likely: items) == items else { return false }
    return try await storedItems(likely: expected) == expected
  }

  /// Fails unless the store, the engine and a new store have the same items. Returns the new store.
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
  /// An engine that implements a batch as single writes cannot distinguish two of them within one tick of the clock.
  /// Such items are in the order of `likely`.
  func storedItems(likely: [CheckedItem]) async throws -> [CheckedItem] {
    let codec = JSONCodec()
    let stored = try await engineUnderTest.readAllEntries().compactMap { entry in
      // Entries that cannot be decoded are not items.
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
