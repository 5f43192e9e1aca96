#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Reading changes that have been announced: rule X2.

extension CheckDefinition {
  @CheckList static var changeReadingChecks: [CheckDefinition] {
    Check(
      .x2, "changes.can-be-read",
      "after receiving the element for a change, a subscriber reads the change or a later state",
      needs: .changeFeed
    ) { try await checkReadability($0) }
    Check(
      .x2, "changes.announce-the-latest",
      "a subscriber that reads a key after each element for it reads the last of many writes in the end",
      needs: .changeFeed
    ) { try await checkLatest($0) }
  }
}

private func checkReadability(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let subscriber = try await ChangeSubscriber(to: engine, context)
  let methods = ChangeMethod.all(context.capabilities)
  let timeout = context.timeout(atMost: .seconds(60))
  for round in context.rounds(quick: 64, standard: 320, exhaustive: 5_000, of: "changes") {
    let method = methods[round % methods.count]
    // Separate keys, so that an element that names them can only be for this change, or for the write before a removal.
    let keys = keys(method.isOfOneKey ? 1 : 2, prefix: "round \(round)/")
    if method.removes { try await engine.write(entries(keys)) }
    async let changed: Void = method.perform(entries(keys), in: engine)
    if method.removes {
      let outcome = await subscriber.receive(
        until: "\(keys[0]), which \(method.call) removes, is absent", timeout: timeout,
        about: keys[0]
      ) { try await engine.read(key: keys[0]) == nil }
      try await changed
      try outcome.get()
      continue
    }
    // Each method is called first in some rounds, because it may correct what the others return.
    let reads = (0..<2).map { ReadMethod.allCases[(round * 2 + $0) % ReadMethod.allCases.count] }
    try await subscriber.expectCovered(keys, method.call) { change in
      guard case .keys(let found) = change else { return }
      for key in found.intersection(keys) {
        for read in reads + [.read] {
          try expect(
            try await read.hasFound(key, with: value(for: key), in: engine),
            "\(read.call) did not return \(key) after an element that named it, for \(method.call)")
        }
      }
    }
    try await changed
  }
  try await checkReadabilityOfMany(context, engine, subscriber)
  if let other = try await context.openAnotherIfPossible() {
    try await checkReadabilityOfOthers(context, engine, subscriber, changedBy: other)
  }
}

/// Reads after each element for a change by another engine on the place.
private func checkReadabilityOfOthers(
  _ context: CheckContext, _ engine: EngineUnderTest, _ subscriber: ChangeSubscriber,
  changedBy other: EngineUnderTest
) async throws {
  let methods = ChangeMethod.writing(context.capabilities)
  for round in context.rounds(quick: 20, standard: 80, exhaustive: 1_000, of: "changes by another engine") {
    let method = methods[round % methods.count]
    let changed = key("by another engine \(round)")
    async let isChanged: Void = method.perform([(changed, value(for: changed))], in: other)
    try await subscriber.expectCovered([changed], "\(method.call) of another engine on the place") { change in
      guard case .keys(let found) = change, found.contains(changed) else { return }
      try expect(
        try await engine.read(key: changed), is: value(for: changed),
        "read(key:) of \(changed) after an element that named it, for \(method.call) of another engine")
    }
    try await isChanged
  }
}

extension ReadMethod {
  /// Whether the method finds the key with the value, which no other key has. `keyCount()` cannot find a key, so
  /// `read(key:)` is used instead.
  fileprivate func hasFound(
    _ key: CacheKey, with value: Data, in engine: EngineUnderTest
  ) async throws -> Bool {
    switch self {
    case .keyCount: try await engine.read(key: key) == value
    case .allKeys: try await engine.allKeys().contains(key)
    default: try await found(of: [key], in: engine).contains(givesValues ? value : nil)
    }
  }
}

/// Reads after each element that may be about the keys. For so many keys, an engine may send an element for everything.
private func checkReadabilityOfMany(
  _ context: CheckContext, _ engine: EngineUnderTest, _ subscriber: ChangeSubscriber
) async throws {
  let wanted = StorageChanges.defaultKeyLimit + 100
  var methods: [ChangeMethod] = []
  for method in ChangeMethod.writing(context.capabilities) where !method.isOfOneKey {
    // With fewer keys, an element would name them.
    let count = try await context.affordableCount(wanted, of: "keys by \(method.call)", by: method.way)
    if count == wanted { methods.append(method) }
  }
  for round in 0..<methods.count * context.byLevel(quick: 1, standard: 4, exhaustive: 40) {
    context.noteProgress()
    let method = methods[round % methods.count]
    let keys = keys(wanted, prefix: "many \(round)/")
    async let changed: Void = method.perform(entries(keys), in: engine)
    let outcome = await subscriber.receive(
      until: "\(keys[0]), the first of \(wanted) that \(method.call) writes, is there",
      timeout: context.timeout(atMost: .seconds(60)), about: keys[0]
    ) { try await engine.keyExists(keys[0]) }
    try await changed
    try outcome.get()
  }
}

private func checkLatest(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let subscriber = try await ChangeSubscriber(to: engine, context)
  let key = key("number")
  for round in 0..<context.byLevel(quick: 4, standard: 20, exhaustive: 200) {
    context.noteProgress()
    let (first, last) = (round * 25 + 1, round * 25 + 25)
    async let written: Void = {
      for number in first...last { try await engine.write(data("\(number)"), key: key) }
    }()
    let outcome = await subscriber.read(
      key, of: engine, until: last, timeout: context.timeout(atMost: .seconds(60)))
    try await written
    try outcome.get()
  }
}

extension ChangeSubscriber {
  /// Reads the key after each element, until it has this number. A number that was read must never become smaller.
  fileprivate func read(
    _ key: CacheKey, of engine: EngineUnderTest, until last: Int, timeout: Duration
  ) async -> Result<Void, any Error> {
    let latest = MutexProtected(0)
    return await receive(until: "\(key) is \(last)", timeout: timeout, about: key) {
      let number = try number(of: try await engine.read(key: key), key)
      let before = latest.withLock { latest in
        defer { latest = number }
        return latest
      }
      try expect(number >= before, "\(key) was \(number) after it had been \(before)")
      return number == last
    }
  }

  /// Reads after each element that may be about the key, until the expected state is there.
  fileprivate func receive(
    until what: String, timeout: Duration, about key: CacheKey,
    look isSeen: @escaping @Sendable () async throws -> Bool
  ) async -> Result<Void, any Error> {
    // The changes may still be in progress. With a slow engine that takes long.
    let progress = CheckProgress()
    let outcome = await withStallTimeout(timeout, since: progress) { () -> Result<Void, any Error> in
      do {
        while let change = await next() {
          progress.note()
          if case .keys(let found) = change, !found.contains(key) { continue }
          if try await isSeen() { return .success(()) }
        }
        throw Violation("the stream ended before an element after which \(what)")
      } catch {
        return .failure(error)
      }
    }
    switch outcome {
    case .success(let result): return result
    case .failure:
      return .failure(
        Violation("for \(timeout), there was no further element, and none after which \(what)"))
    }
  }
}
