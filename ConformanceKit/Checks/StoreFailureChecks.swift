import StockroomCore

// Calls to a store that fail: rule S2.

extension CheckDefinition {
  @CheckList static var storeFailureChecks: [CheckDefinition] {
    Check(
      .s2, "store.failed-calls",
      "a call that fails in the engine throws, leaves items and engine as they were, and works when it is "
        + "repeated"
    ) { try await checkFailedCalls($0) }
    Check(
      .s2, "store.items-follow-acknowledgement",
      "items change after the engine has acknowledged a call, and not before"
    ) { try await checkAcknowledgement($0) }
    Check(
      .s2, "store.unencodable-item",
      "an item that cannot be encoded makes only its own call throw, and leaves items and engine as they were"
    ) { try await checkUnencodable($0) }
    Check(
      .s2, "store.lost-acknowledgement",
      "when the engine performs a call but throws, the items are those in the engine"
    ) { try await checkLostAcknowledgement($0) }
    Check(
      .s2, "store.failed-load",
      "while the items cannot be loaded, every change throws and changes nothing, and loading can be retried"
    ) { try await checkFailedLoad($0) }
  }
}

/// A single call or a chain of calls.
private struct Attempt: CustomStringConvertible {
  let changes: [CheckedChange]
  let isChain: Bool

  var description: String { isChain ? "a chain of \(changes)" : "\(changes[0])" }

  @MainActor func make(in fixture: StoreFixture) async throws {
    if isChain { try await fixture.run(changes) } else { try await fixture.perform(changes[0]) }
  }

  static let initialItems = (0..<4).map { CheckedItem($0) }

  /// One attempt of each kind. Each changes something when made after the previous ones.
  static let all: [Attempt] = [
    call(.insert([CheckedItem(10)])),
    call(.insert([CheckedItem(1, version: 2)])),
    call(.insert([CheckedItem(11), CheckedItem(2, version: 2), CheckedItem(12)])),
    call(.remove([CheckedItem(0)])),
    call(.remove([CheckedItem(1), CheckedItem(3)])),
    chain(.insert([CheckedItem(13)]), .remove([CheckedItem(2)])),
    chain(.removeAll, .insert([CheckedItem(20), CheckedItem(21)])),
    call(.removeAll),
  ]

  private static func call(_ change: CheckedChange) -> Attempt { Attempt(changes: [change], isChain: false) }
  private static func chain(_ changes: CheckedChange...) -> Attempt {
    Attempt(changes: changes, isChain: true)
  }
}

@MainActor private func checkFailedCalls(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(Attempt.initialItems))
  var expected = Attempt.initialItems
  for (number, attempt) in Attempt.all.enumerated() {
    let error = StorageError(number % 2 == 0 ? .io : .diskFull, "This call is to fail.")
    fixture.engine.failEveryCall(with: error, where: \.isWrite)
    try await fixture.expectFailure(of: "\(attempt) on an engine that fails") {
      try await attempt.make(in: fixture)
    }
    fixture.engine.clearFaults()
    try await fixture.expectItems(expected, "after \(attempt) had failed")
    try await attempt.make(in: fixture)
    for change in attempt.changes { expected.apply(change) }
    try await fixture.expectItems(expected, "after \(attempt) was repeated")
  }
  if context.capabilities.contains(.transactions) { try await failUpdate(fixture) }
}

/// Fails unless an update that fails in the engine changes nothing, and works when it is repeated.
@MainActor private func failUpdate(_ fixture: StoreFixture) async throws {
  let (item, updated) = (CheckedItem("updated"), CheckedItem("updated", version: 2))
  try await fixture.insert(item)
  let items = fixture.store.items
  fixture.engine.failEveryCall(where: \.isWrite)
  try await fixture.expectFailure(of: "an update on an engine that fails") {
    try await fixture.update(item, adding: 1)
  }
  fixture.engine.clearFaults()
  try await fixture.expectItems(items, "after an update had failed")
  try await fixture.update(item, adding: 1)
  try await fixture.expectItems(items.dropLast() + [updated], "after an update was repeated")
}

@MainActor private func checkAcknowledgement(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(Attempt.initialItems))
  var expected = Attempt.initialItems
  for attempt in Attempt.all {
    let items = try await fixture.whileUnderWay {
      try await attempt.make(in: fixture)
    } look: {
      fixture.store.items
    }
    try expectSame(items, expected, "the items while \(attempt) was under way")
    for change in attempt.changes { expected.apply(change) }
    try expectSame(fixture.store.items, expected, "the items after \(attempt)")
  }
}

@MainActor private func checkUnencodable(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(Attempt.initialItems))
  var expected = Attempt.initialItems
  let bad = CheckedItem.unencodable("bad")
  let attempts: [(String, () async throws -> Void)] = [
    ("insert of an item that cannot be encoded", { try await fixture.insert(bad) }),
    (
      "insert of three of which one cannot be encoded",
      {
        try await fixture.insert(CheckedItem(30), bad, CheckedItem(1, version: 2))
      }
    ),
    (
      "a replacement that cannot be encoded",
      {
        try await fixture.insert(.unencodable(CheckedItem(1).id))
      }
    ),
    (
      "a chain with an item that cannot be encoded",
      {
        try await fixture.run([.removeAll, .insert([CheckedItem(31), bad]), .remove([CheckedItem(0)])])
      }
    ),
  ]
  for (name, attempt) in attempts {
    try await fixture.expectFailure(of: name, attempt)
    try await fixture.expectItems(expected, "after \(name)")
  }

  let changes: [CheckedChange] = (40..<50).map { .insert([$0 == 44 ? bad : CheckedItem($0)]) }
  let results = await fixture.performAtOnce(changes)
  for (change, result) in zip(changes, results) {
    if case .insert(let items) = change, items.contains(where: bad.hasIdentifier) {
      try await fixture.expectFailure(of: "\(change), beside others,") { try result.get() }
    } else {
      try result.get()
      expected.apply(change)
    }
  }
  try expect(Set(fixture.store.items), is: Set(expected), "the items after concurrent calls")
  try await fixture.expectAgreement("after items that could not be encoded")
}

@MainActor private func checkLostAcknowledgement(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(Attempt.initialItems))
  for attempt in Attempt.all {
    fixture.engine.failCall(
      with: StorageError(.io, "The acknowledgement is lost."), .afterwards, where: \.isWrite)
    // The store may also find out by itself that the change was made.
    do { try await attempt.make(in: fixture) } catch {}
    fixture.engine.clearFaults()
    try await fixture.expectItems(
      fixture.store.items, "after \(attempt), which the engine had performed before it threw,")
  }
  try await fixture.insert(CheckedItem(60))
  try expect(
    fixture.store.items.contains(CheckedItem(60)), "an item that was inserted afterwards was missing")
  try await fixture.expectAgreement("after answers were lost")
}

@MainActor private func checkFailedLoad(_ context: CheckContext) async throws {
  let before = try await context.openStore()
  try await before.perform(.insert(Attempt.initialItems))
  let fixture = StoreFixture(context, before.engineUnderTest) { $0.failEveryCall(where: \.isRead) }
  try await fixture.expectFailure(of: "itemsHaveLoaded() on an engine that cannot be read") {
    try await fixture.load()
  }
  for attempt in Attempt.all {
    try await fixture.expectFailure(of: "\(attempt) before the items could be loaded") {
      try await attempt.make(in: fixture)
    }
    try expectSame(
      try await fixture.storedItems(likely: Attempt.initialItems), Attempt.initialItems,
      "the entries in the engine after \(attempt), when nothing had been loaded,")
  }
  fixture.engine.clearFaults()
  try await fixture.load()
  try await fixture.expectItems(Attempt.initialItems, "after loading was tried again")
  try await fixture.insert(CheckedItem(70))
  try await fixture.expectItems(Attempt.initialItems + [CheckedItem(70)], "after that and an insertion")
}
