#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Changes by the engine itself: rule X1. Changes by others are in ChangeSharingChecks.

extension CheckDefinition {
  @CheckList static var changeFeedChecks: [CheckDefinition] {
    for kind in ChangeCall.Kind.allCases {
      Check(
        .x1, "changes.cover-\(kind.name)",
        "a call of the kind \(kind.name) is covered by an element for every subscriber",
        needs: kind.needs.union(.changeFeed)
      ) { try await checkCall($0, kind) }
    }
    Check(
      .x1, "changes.of-any-key", "changes of keys of any bytes and any length are covered", needs: .changeFeed
    ) { try await checkKeys($0) }
    Check(
      .x1, "changes.of-many-tasks", "concurrent writes and removals of many tasks are covered",
      needs: .changeFeed
    ) { try await checkManyTasks($0) }
    Check(
      .x1, "changes.behind-a-body",
      "changes while a body runs are covered, and so are those of the body",
      needs: [.changeFeed, .transactions]
    ) { try await checkBehindBody($0) }
    Check(
      .x1, "changes.for-many-subscribers",
      "every change is covered for each of 100 subscribers, even after the first ones have ended",
      needs: .changeFeed
    ) { try await checkManySubscribers($0) }
    Check(
      .x1, "changes.while-subscribing",
      "a subscription during a series of writes misses nothing acknowledged after changes() has returned",
      needs: .changeFeed
    ) { try await checkSubscribing($0) }
    Check(
      .x1, "changes.of-a-large-batch", "a batch of very many entries is covered, and so is their removal",
      needs: .changeFeed
    ) { try await checkLargeBatch($0) }
    Check(
      .x1, "changes.after-failing-calls",
      "changes after calls that threw or were cancelled are covered", needs: .changeFeed
    ) { try await checkChangesAfterFailures($0) }
    Check(
      .x1, "changes.for-a-slow-subscriber",
      "every change is covered for a subscriber that has not read for a long time", needs: .changeFeed
    ) { try await checkChangesForSlowSubscriber($0) }
  }
}

// MARK: - Every kind of call

private func checkCall(_ context: CheckContext, _ kind: ChangeCall.Kind) async throws {
  let engine = try await context.open()
  for round in 0..<3 {
    let call = ChangeCall(kind: kind, prefix: "round \(round)/")
    try await call.prepare(engine)
    // A subscriber with an origin does not receive the changes with this origin, but those with another one.
    let origins = (0..<4).map { round > 0 && $0 % 2 == 1 ? ChangeOrigin() : nil }
    var subscribers: [ChangeSubscriber] = []
    for origin in origins {
      subscribers.append(
        try await ChangeOrigin.$current.withValue(origin) { try await ChangeSubscriber(to: engine, context) })
    }
    try await ChangeOrigin.$current.withValue(round == 2 ? ChangeOrigin() : nil) {
      try await call.perform(on: engine)
    }
    for (number, subscriber) in subscribers.enumerated() {
      let origin = origins[number] == nil ? "" : ", which has a ChangeOrigin of its own"
      try await call.expectCovered(by: subscriber, ", for subscriber \(number + 1) of 4\(origin)")
    }
  }
  if kind == .writeEntries {
    try await checkBehindTheFuture(engine, try await ChangeSubscriber(to: engine, context))
  }
  if kind == .transaction {
    try await checkRewritingBody(engine, try await ChangeSubscriber(to: engine, context))
  }
}

/// Has a body write values that are there already. An engine might compare the entries before and after it.
private func checkRewritingBody(_ engine: EngineUnderTest, _ subscriber: ChangeSubscriber) async throws {
  let (same, renewed) = (key("written again by a body"), key("removed and written again by a body"))
  try await engine.write([(same, data("v")), (renewed, data("v"))])
  try await subscriber.expectCovered([same, renewed], "the writes before a body")
  try await engine.withTransaction { try $0.write(data("v"), key: same) }
  try await subscriber.expectCovered([same], "a transaction that wrote the value that was there")
  try await engine.withTransaction { transaction in
    try transaction.remove(key: renewed)
    try transaction.write(data("v"), key: renewed)
  }
  try await subscriber.expectCovered(
    [renewed], "a transaction that removed an entry and wrote it again as it was")
}

/// Imports an entry whose times are a year ahead. With an engine that keeps times, later writes have earlier times.
func checkBehindTheFuture(_ writer: EngineUnderTest, _ subscriber: ChangeSubscriber) async throws {
  let (ofTheFuture, first, second) = (key("of the future"), key("behind it/1"), key("behind it/2"))
  let future = Date(timeIntervalSinceNow: 31_536_000)
  let entry = StorageEntry(key: ofTheFuture, data: data("v"), createdAt: future, updatedAt: future)
  try await writer.writeEntries([entry])
  try await subscriber.expectCovered([ofTheFuture], "an import of an entry whose times are a year ahead")
  for method in [ChangeMethod.write, .writeMany, .remove] {
    try await method.perform([(first, data("v")), (second, data("v"))], in: writer)
    try await subscriber.expectCovered([first, second], "\(method.call) after such an import")
  }
  try await writer.remove(key: ofTheFuture)
}

private func checkKeys(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = AdversarialKeys.all + AdversarialKeys.atTheEdge
  let subscriber = try await ChangeSubscriber(to: engine, context)
  for key in keys { try await engine.write(value(for: key), key: key) }
  try await subscriber.expectCovered(keys, "the writes of unusual keys")
  for part in stride(from: 0, to: keys.count, by: 20) {
    let some = Array(keys[part..<min(part + 20, keys.count)])
    try await engine.write(entries(some, version: 2))
    try await subscriber.expectCovered(some, "a batch of unusual keys")
  }
  for key in keys { try await engine.remove(key: key) }
  try await subscriber.expectCovered(keys, "the removals of unusual keys")
  // An engine may hide changes of its own names from subscribers.
  for part in stride(from: 0, to: ReservedNames.keys.count, by: 40) {
    let some = Array(ReservedNames.keys[part..<min(part + 40, ReservedNames.keys.count)])
    try await engine.write(entries(some))
    try await subscriber.expectCovered(some, "a batch of keys with names that engines use")
    try await engine.remove(keys: some)
    try await subscriber.expectCovered(some, "the removal of keys with names that engines use")
  }
}

private func checkManyTasks(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let subscribers = try await gather(0..<3) { _ in try await ChangeSubscriber(to: engine, context) }
  let rounds = context.rounds(quick: 400, standard: 2_000, exhaustive: 20_000, of: "changes")
  let changed = try await gather(0..<8) { task in
    var changed: Set<CacheKey> = []
    for number in rounds.share(of: task, among: 8) {
      let own = key("task \(task)/\(number)")
      // Each task makes calls of all kinds.
      switch number / 8 % 4 {
      case 0: try await engine.write(data("v"), key: own)
      case 3 where context.capabilities.contains(.transactions):
        try await engine.withTransaction { transaction in
          try transaction.remove(key: key("common"))
          try transaction.write(data("v"), key: own)
        }
      case 1: try await engine.write([(own, data("v")), (key("common"), data("\(task)"))])
      default: try await engine.apply([.write(data("v"), key: own), .remove(key: key("common"))])
      }
      changed.insert(own)
    }
    return changed
  }
  let all = changed.reduce(into: Set<CacheKey>()) { $0.formUnion($1) }
  for subscriber in subscribers { try await subscriber.expectCovered(all, "the changes of 8 tasks") }
  try await coverWithoutAPause(engine, context)
}

/// Makes other changes, in several ways, during a long transaction body.
private func checkBehindBody(_ context: CheckContext) async throws {
  let engine = try await context.open()
  for method in ChangeMethod.writing(context.capabilities) {
    let subscribers = [
      try await ChangeSubscriber(to: engine, context), try await ChangeSubscriber(to: engine, context),
      try await ChangeSubscriber(to: engine, context),
    ]
    let (byBody, byOther) = (key("\(method.rawValue), body"), key("\(method.rawValue), other"))
    let (isOver, runs) = (Flag(), AtomicCounter())
    let body = PausedBody(in: engine, milliseconds: 60) { transaction, pause in
      // The body reads a key that the other call changes, so it may have to run again.
      _ = try transaction.read(key: byOther)
      let run = runs.increment()
      pause()
      isOver.set()
      try transaction.write(data("v"), key: byBody)
      try transaction.write(data("v"), key: key("\(method.rawValue), run \(run)"))
    }
    try await body.begin()
    // An engine may block the call until the body has returned.
    try await method.perform([(byOther, data("v"))], in: engine)
    try await subscribers[0].expectCovered([byOther], "\(method.call) while a body ran")
    let isBefore = !isOver.isSet
    try await body.end()
    let what = "a transaction that had begun before \(method.call)"
    // Elements that arrived before the body returned do not cover its change.
    if isBefore { try await subscribers[0].expectCovered([byBody], "\(what), and ended after it") }
    try await subscribers[1].expectCovered([byBody, byOther], "\(what), and that call")
    let ofRuns = (1...max(runs.value, 1)).map { key("\(method.rawValue), run \($0)") }
    try await subscribers[2].expectCovered(
      try await engine.keysExist(ofRuns), "the run of a body that counts, of \(runs.value) runs")
  }
  try await subscribeBesideBody(engine, context)
}

/// Subscribes while a body runs. The changes of the body are acknowledged after the subscription.
private func subscribeBesideBody(_ engine: EngineUnderTest, _ context: CheckContext) async throws {
  let (changed, isOver) = (key("of a body beside a subscription"), Flag())
  let body = PausedBody(in: engine, milliseconds: 60) { transaction, pause in
    try transaction.write(data("v"), key: changed)
    pause()
    isOver.set()
  }
  try await body.begin()
  // An engine may block the call until the body has returned.
  let subscriber = try await ChangeSubscriber(to: engine, context)
  let isInTime = !isOver.isSet
  try await body.end()
  if isInTime {
    try await subscriber.expectCovered(
      [changed], "a transaction whose body was running when changes() was called")
  }
}

// MARK: - Subscribing

private func checkManySubscribers(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let changes = ChangeMethod.all(context.capabilities)
  var subscribers: [ChangeSubscriber] = []
  for _ in 0..<100 { subscribers.append(try await ChangeSubscriber(to: engine, context)) }
  for round in 0..<8 {
    let changed = keys(1, prefix: "round \(round)/")
    let change = changes[round % changes.count]
    for method in change.removes ? [.write, change] : [change] {
      try await method.perform(entries(changed), in: engine)
      for (number, subscriber) in subscribers.enumerated() {
        try await subscriber.expectCovered(
          changed, "\(method.call), for subscriber \(number + 1) of \(subscribers.count)")
      }
      context.noteProgress()
    }
    subscribers.removeFirst(round == 0 ? 1 : 13)
  }
}

private func checkSubscribing(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let rounds = context.rounds(quick: 20, standard: 100, exhaustive: 2_000, of: "subscriptions")
  let threads = CheckExecutor()
  defer { threads.stop() }
  for round in rounds {
    let isSubscribed = Flag()
    let written = Task(executorPreference: threads) { @concurrent in
      try await gather(0..<4) { writer in
        var written: [CacheKey] = []
        var rest = 3
        while rest > 0, !Task.isCancelled {
          // Changes made after the subscription do not matter here.
          if isSubscribed.isSet { rest -= 1 }
          let key = key("\(round)/\(writer)/\(written.count)")
          try await engine.write(data("v"), key: key)
          written.append(key)
          await Task.yield()
        }
        return written
      }
    }
    do {
      while try await engine.keyCount() < 8, !Task.isCancelled { await Task.yield() }
      let subscriber = try await ChangeSubscriber(to: engine, context)
      // A change that cannot be read after changes() has returned is acknowledged later.
      let present = Set(try await engine.allKeys())
      isSubscribed.set()
      let missing = try await written.value.flatMap { $0 }.filter { !present.contains($0) }
      try await subscriber.expectCovered(
        missing, "writes that were acknowledged after changes() had returned")
      try await engine.removeAllData()
    } catch {
      isSubscribed.set()
      written.cancel()
      throw error
    }
  }
}

// MARK: - Large batches

private func checkLargeBatch(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let wanted = context.byLevel(quick: 5_000, standard: 50_000, exhaustive: 300_000)
  let count = try await context.affordableCount(wanted, of: "entries of a batch", atLeast: 1_100)
  let keys = keys(count, prefix: "batch/")
  for size in Set([900, 1_100, count]).sorted() {
    try await expectCovered(Array(keys.prefix(size)), by: [.writeMany, .removeMany], engine, context)
  }
  // By every method: short keys, and keys so long that few fit into a message.
  let methods = ChangeMethod.all(context.capabilities).filter { !$0.isOfOneKey }
  for prefix in ["batch/", String(repeating: "k", count: 490)] {
    let some = ConformanceKit.keys(1_100, prefix: prefix)
    for method in methods where !method.removes {
      try await expectCovered(some, by: [method, .removeAll], engine, context)
    }
  }
}

/// Has each method change the keys. All of them must be covered for a subscriber.
private func expectCovered(
  _ keys: [CacheKey], by methods: [ChangeMethod], _ engine: EngineUnderTest, _ context: CheckContext
) async throws {
  let subscriber = try await ChangeSubscriber(to: engine, context)
  for method in methods {
    try await method.perform(entries(keys), in: engine)
    context.noteProgress()
    try await subscriber.expectCovered(
      keys, "\(method.call) of \(keys.count) keys of some \(keys[0].value.utf8.count) bytes")
  }
}
