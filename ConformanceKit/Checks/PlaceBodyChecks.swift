#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A place that is deleted, moved or replaced while the body of a transaction runs: rule C6. An engine may check its
// place only when a call begins. Changes between calls are in PlaceChecks.

extension CheckDefinition {
  @CheckList static var placeBodyChecks: [CheckDefinition] {
    for change in PlaceChange.allCases {
      Check(
        .c6, "place.\(change.rawValue)-during-a-body",
        "a transaction whose place is \(change.participle) during its body throws io, conflict or locked, or is "
          + "committed to what is there now, and keeps what another engine has written there meanwhile",
        needs: [.persistent, .transactions]
      ) { try await checkPlaceDuringBody($0, change) }
    }
  }
}

private let counter = key("counter")
private let new = key("new")

private func checkPlaceDuringBody(_ context: CheckContext, _ change: PlaceChange) async throws {
  let (other, aside) = (context.root.appending(path: "other"), context.root.appending(path: "aside"))
  var there: [CacheKey: Data] = [:]
  if change.bringsEntries {
    there = Dictionary(uniqueKeysWithValues: entries(keys(5, prefix: "other-")).map { ($0.key, $0.data) })
    there[counter] = data("100")
    let stranger = try await context.open(other)
    try await stranger.write(there.map { ($0.key, $0.value) })
    try await context.close(stranger)
  }
  let engine = try await context.open()
  let old = entries(keys(8, prefix: "old-"))
  try await engine.write(old + [(counter, data("5"))])
  // After this read, the engine has opened or loaded everything that it keeps open or in memory.
  _ = try await engine.readAllDataAndKeys()

  let body = BodyOfCounter(in: engine)
  defer { body.letEnd() }
  try await body.begin()
  try change.perform(on: context.place, replacement: other, aside: aside)
  body.notePlaceHasChanged()
  let newcomer = Newcomer()
  // The body waits for the new engine for two seconds at most, because that engine may have to wait for the body.
  async let arrival: Void = { @concurrent in
    defer { body.letEnd() }
    try await newcomer.arrive(context)
  }()
  let seen = try await body.end(change)
  try await arrival
  _ = try await returnsOrThrowsIO(engine, "after its place had been \(change.participle)") {
    try await $0.close()
  }
  engine.release()
  try await newcomer.leave(context)

  let fresh = try await context.open()
  let held = try number(of: there[counter], counter)
  there[Newcomer.mine.key] = Newcomer.mine.data
  if let seen {
    there[new] = data("new")
    there[counter] = data("\(held + 1)")
    try expect(
      seen, is: held,
      "the counter in a body that was committed after its place had been \(change.participle) and held \(held)"
    )
  }
  try expect(try await fresh.readAllDataAndKeys(), has: there, change, isCommitted: seen != nil)
  try await context.close(fresh)
  guard change.keepsOldPlace else { return }
  let moved = try await context.open(aside)
  try await expectStored(old, in: moved)
  try await context.close(moved)
}

private func expect(
  _ entries: [(key: CacheKey, data: Data)], has there: [CacheKey: Data], _ change: PlaceChange,
  isCommitted: Bool
) throws {
  let found = try contentsByKey(entries)
  for key in Set(found.keys).union(there.keys).sorted() where found[key] != there[key] {
    throw Violation(
      "its place was \(change.participle) during the body of a transaction, which "
        + "\(isCommitted ? "returned" : "threw"), and an engine that was opened on it after that had "
        + "\(describe(found[key] as Any)) for \(key) instead of \(describe(there[key] as Any))")
  }
}

/// A transaction that increments a counter, and whose place changes during its body.
private struct BodyOfCounter: Sendable {
  private let hasRead: Flag
  private let hasEnded: Flag
  private let placeHasChanged: Latch
  private let mayEnd: Latch
  private let call: Task<Int, any Error>

  init(in engine: EngineUnderTest) {
    let (hasRead, hasEnded) = (Flag(), Flag())
    let (placeHasChanged, mayEnd) = (Latch(), Latch())
    (self.hasRead, self.hasEnded) = (hasRead, hasEnded)
    (self.placeHasChanged, self.mayEnd) = (placeHasChanged, mayEnd)
    call = onDedicatedThread {
      defer { hasEnded.set() }
      // An engine that has lost its place may throw `conflict` each time.
      return try await EngineUnderTest.$patienceWithConflicts.withValue(.zero) {
        try await engine.withTransaction { transaction in
          let seen = try transaction.number(counter)
          hasRead.set()
          while !placeHasChanged.wait(for: .seconds(60)) {}
          _ = mayEnd.wait(for: .seconds(2))
          try transaction.write(data("\(seen + 1)"), key: counter)
          try transaction.write(data("new"), key: new)
          return seen
        }
      }
    }
  }

  /// Waits until the body has read the counter.
  func begin() async throws {
    while !hasRead.isSet, !hasEnded.isSet { try await yieldToAllThreads() }
    if !hasRead.isSet { _ = try await call.value }
  }

  func notePlaceHasChanged() { placeHasChanged.signal() }

  /// Lets the body end without waiting for anything else.
  func letEnd() {
    placeHasChanged.signal()
    mayEnd.signal()
  }

  /// Waits for the call. Returns what the last run of the body has read, or nil if the call threw.
  func end(_ change: PlaceChange) async throws -> Int? {
    do {
      return try await call.value
    } catch let failure as CallFailure {
      let codes: [StorageError.Code] = [.io, .conflict, .locked]
      guard let code = (failure.error as? StorageError)?.code, codes.contains(code) else {
        throw Violation(
          "when its place had been \(change.participle) during the body, \(failure), which is not StorageError with "
            + "code io, conflict or locked")
      }
      return nil
    }
  }
}

/// Another engine, which is opened on the place that has changed, and writes there.
private final class Newcomer: Sendable {
  static let mine = (key: key("mine"), data: data("mine"))

  private let engine = MutexProtected<EngineUnderTest?>(nil)
  private let hasWritten = Flag()

  /// Opens the engine and writes, unless the old one keeps the place locked.
  func arrive(_ context: CheckContext) async throws {
    do {
      let engine = try await context.open()
      self.engine.withLock { $0 = engine }
      try await engine.write(Self.mine.data, key: Self.mine.key)
      hasWritten.set()
    } catch let failure as CallFailure {
      // Until it is open, it may also throw `io` if it notices that the old engine is about to follow the change.
      let codes: [StorageError.Code] = engine.withLock { $0 == nil } ? [.locked, .io] : [.locked]
      guard let code = (failure.error as? StorageError)?.code, codes.contains(code) else { throw failure }
    }
  }

  /// Closes the engine. Writes before that if it could not do so while the old one was open.
  func leave(_ context: CheckContext) async throws {
    let opened = engine.withLock { $0 }
    let engine = if let opened { opened } else { try await context.open() }
    if !hasWritten.isSet { try await engine.write(Self.mine.data, key: Self.mine.key) }
    try await context.close(engine)
  }
}
