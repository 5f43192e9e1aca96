#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Changes by other engines on a place, in this process and in others: rules X1, X2 and X5.

extension CheckDefinition {
  @CheckList static var changeSharingChecks: [CheckDefinition] {
    Check(
      .x1, "changes.of-another-engine",
      "changes by another engine on the place, by calls of any kind, are covered",
      needs: [.changeFeed, .persistent]
    ) { try await checkOtherEngine($0) }
    Check(
      .x1, "changes.of-two-engines",
      "concurrent writes of two engines on the place are covered in both",
      needs: [.changeFeed, .persistent]
    ) { try await checkTwoEngines($0) }
    Check(
      .x1, "changes.of-many-engines",
      "writes of one of twelve engines on a place are covered in all others",
      needs: [.changeFeed, .persistent]
    ) { try await checkManyEngines($0) }
    Check(
      .x1, "processes.changes", "changes by another process, by calls of any kind, are covered",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkOtherProcess($0) }
    Check(
      .x1, "processes.changes-of-any-key",
      "changes by another process are covered for keys of any bytes and any length, and in large batches",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkKeysOfOtherProcess($0) }
    Check(
      .x1, "processes.changes-at-the-same-time",
      "concurrent writes of two processes are covered in both",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkTwoProcesses($0) }
    Check(
      .x1, "processes.changes-while-subscribing",
      "a subscription misses nothing that is acknowledged in another process after changes() has returned",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkSubscribing($0) }
    Check(
      .x2, "processes.changes-can-be-read",
      "after receiving the element for a change by another process, a subscriber reads the change or a later "
        + "state",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkReadability($0) }
    Check(
      .x5, "killed.while-others-subscribe",
      "the acknowledged writes of a process that is killed are covered, and so are later changes by others",
      needs: [.changeFeed, .persistent, .multiProcess], needsWorker: true
    ) { try await checkKills($0) }
  }
}

// MARK: - Engines

private func checkOtherEngine(_ context: CheckContext) async throws {
  let engine = try await context.open()
  guard let second = try await context.openUnlessLocked(context.place) else { return }
  for (writer, reader) in [(second, engine), (engine, second)] {
    let lasting = try await ChangeSubscriber(to: reader, context)
    for kind in ChangeCall.Kind.all(context.capabilities) {
      let call = ChangeCall(kind: kind, prefix: "\(kind.name)/")
      try await call.prepare(writer)
      let subscriber = try await ChangeSubscriber(to: reader, context)
      try await call.perform(on: writer)
      try await call.expectCovered(by: subscriber, " in another engine on the place")
      try await call.expectTwoMoreCovered(by: lasting, "another engine") { changed in
        try await writer.write(data("v"), key: changed)
      }
    }
    try await checkBehindTheFuture(writer, try await ChangeSubscriber(to: reader, context))
    // Many keys, and keys so long that few fit into a message.
    for prefix in ["batch/", String(repeating: "k", count: 490)] {
      context.noteProgress()
      let (subscriber, many) = (try await ChangeSubscriber(to: reader, context), keys(1_100, prefix: prefix))
      let what = "\(many.count) keys of some \(many[0].value.utf8.count) bytes in another engine on the place"
      try await writer.write(entries(many))
      try await subscriber.expectCovered(many, "a batch of \(what)")
      try await writer.remove(keys: many)
      try await subscriber.expectCovered(many, "a removal of \(what)")
    }
  }
  try await checkReopened([engine, second], context)
}

/// Closes all engines on the place, and opens two others: an engine may still refer to engines that have been closed.
private func checkReopened(_ closed: [EngineUnderTest], _ context: CheckContext) async throws {
  for engine in closed { try await context.close(engine) }
  let engine = try await context.open()
  guard let second = try await context.openUnlessLocked(context.place) else { return }
  for (number, (writer, reader)) in [(second, engine), (engine, second)].enumerated() {
    let (changed, subscriber) = (key("reopened \(number)"), try await ChangeSubscriber(to: reader, context))
    try await writer.write(data("v"), key: changed)
    try await subscriber.expectCovered(
      [changed], "a write by another engine, after all engines on the place had been closed and reopened")
  }
}

private func checkManyEngines(_ context: CheckContext) async throws {
  let wanted = 12
  var engines = [try await context.open()]
  var subscribers = [try await ChangeSubscriber(to: engines[0], context)]
  while engines.count < wanted {
    do {
      guard let another = try await context.openUnlessLocked(context.place) else { break }
      subscribers.append(try await ChangeSubscriber(to: another, context))
      engines.append(another)
    } catch let failure as CallFailure {
      // No rule requires room for so many engines: each may need several connections, and the system may limit how many
      // directories can be watched.
      guard engines.count > 3, let code = (failure.error as? StorageError)?.code,
        [.unavailable, .io, .permissionDenied].contains(code)
      else { throw failure }
      // The remaining engines may need the resources of the last one.
      subscribers.removeLast()
      try await context.close(engines.removeLast())
      break
    }
    context.noteProgress()
  }
  if engines.count == 1 { return }
  if engines.count < wanted { context.noteShortfall("\(engines.count) of \(wanted) engines") }
  for (round, writer) in [0, engines.count - 1, engines.count / 2].enumerated() {
    let written = key("\(round), by \(writer)")
    try await engines[writer].write(data("v"), key: written)
    for (number, subscriber) in subscribers.enumerated() {
      try await subscriber.expectCovered(
        [written], "a write by engine \(writer + 1), for engine \(number + 1) of \(engines.count)")
      let found = try await engines[number].read(key: written)
      guard found == data("v") else {
        throw Violation(
          "read(key:) in engine \(number + 1) of \(engines.count) of what engine \(writer + 1) had written was "
            + describe(found as Any), rule: .x2)
      }
    }
    context.noteProgress()
  }
}

private func checkTwoEngines(_ context: CheckContext) async throws {
  let engine = try await context.open()
  guard let second = try await context.openUnlessLocked(context.place) else { return }
  let subscribers = [
    try await ChangeSubscriber(to: engine, context), try await ChangeSubscriber(to: second, context),
  ]
  let rounds = context.rounds(quick: 200, standard: 1_000, exhaustive: 10_000, of: "writes")
  let written = try await gather(0..<2) { writer in
    var written: [CacheKey] = []
    for number in rounds.share(of: writer, among: 2) {
      let key = key("\(writer)/\(number)")
      try await (writer == 0 ? engine : second).write(data("v"), key: key)
      written.append(key)
    }
    return written
  }
  for subscriber in subscribers {
    try await subscriber.expectCovered(written.flatMap { $0 }, "the writes of two engines at the same time")
  }
}

// MARK: - Processes

extension CheckContext {
  /// Has another process make changes, one after the other. Returns when the last has been acknowledged.
  fileprivate func perform(_ changes: MakeChanges, in worker: WorkerProcess) async throws {
    for try await _ in try worker.start(changes) { noteProgress() }
  }
}

private func checkOtherProcess(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await context.withWorker { worker in
    let lasting = try await ChangeSubscriber(to: engine, context)
    for kind in ChangeCall.Kind.all(context.capabilities) {
      let call = ChangeCall(kind: kind, prefix: "\(kind.name)/")
      try await call.prepare(engine)
      let subscriber = try await ChangeSubscriber(to: engine, context)
      try await context.perform(MakeChanges([.call(call)], at: context.place), in: worker)
      try await call.expectCovered(by: subscriber, " in another process")
      // The same subscriber receives changes by this process too.
      let own = key("own/\(kind.name)")
      try await engine.write(data("v"), key: own)
      try await subscriber.expectCovered(
        [own], "a write by the engine itself, after another process had written")
      try await call.expectTwoMoreCovered(by: lasting, "another process") { changed in
        try await context.perform(MakeChanges([.write([changed.value])], at: context.place), in: worker)
      }
    }
  }
}

private func checkKeysOfOtherProcess(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = AdversarialKeys.all + AdversarialKeys.atTheEdge
  let long = (0..<400).map { key(String(repeating: "k", count: 500) + "\(10_000 + $0)") }
  let wanted = context.byLevel(quick: 5_000, standard: 50_000, exhaustive: 300_000)
  let many = ConformanceKit.keys(
    try await context.affordableCount(wanted, of: "entries of a batch", atLeast: 900))
  try await context.withWorker { worker in
    let subscriber = try await ChangeSubscriber(to: engine, context)
    try await context.perform(MakeChanges(keys.map { .write([$0.value]) }, at: context.place), in: worker)
    try await subscriber.expectCovered(keys, "writes of unusual keys in another process")
    try await context.perform(MakeChanges([.write(keys.map(\.value))], at: context.place), in: worker)
    try await subscriber.expectCovered(keys, "a batch of unusual keys in another process")
    for batch in [long, Array(many.prefix(900)), many] {
      try await context.perform(MakeChanges([.write(batch.map(\.value))], at: context.place), in: worker)
      try await subscriber.expectCovered(batch, "a batch of \(batch.count) writes in another process")
    }
    try await context.perform(MakeChanges([.remove(many.map(\.value))], at: context.place), in: worker)
    try await subscriber.expectCovered(many, "a batch of \(many.count) removals in another process")
  }
}

private func checkTwoProcesses(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = context.byLevel(quick: 200, standard: 1_000, exhaustive: 20_000)
  let theirs = ExchangeChanges(
    place: context.place, share: "worker", other: "parent", count: count,
    timeout: context.timeout(atMost: .seconds(60)))
  let subscriber = try await ChangeSubscriber(to: engine, context)
  try await context.withWorker { worker in
    let messages = try worker.start(theirs)
    // The worker has subscribed.
    _ = try await messages.next()
    async let written: Void = {
      for number in 0..<count {
        try await ExchangeChanges.write(number, of: "parent", to: engine)
        if number.isMultiple(of: 64) { context.noteProgress() }
      }
    }()
    try await subscriber.expectCovered(
      (0..<count).flatMap { number in
        ["worker", "parent"].map { ExchangeChanges.key(number, of: $0) }
      }, "the writes of two processes at the same time")
    try await written
    while try await messages.next() != nil {}
  }
}

private func checkSubscribing(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let rounds = context.byLevel(quick: 4, standard: 12, exhaustive: 200)
  let steps = context.byLevel(quick: 20, standard: 40, exhaustive: 60)
  try await context.withWorker { worker in
    for round in 0..<rounds {
      context.noteProgress()
      let keys = keys(steps, prefix: "\(round)/")
      let writes = MakeChanges(keys.map { .write([$0.value]) }, at: context.place)
      var subscription: (subscriber: ChangeSubscriber, missing: [CacheKey])?
      var count = 0
      for try await _ in try worker.start(writes) {
        count += 1
        if count == 1 + round % 4 * steps / 8 {
          let subscriber = try await ChangeSubscriber(to: engine, context)
          // A change that cannot be read after changes() has returned is acknowledged later.
          let present = Set(try await engine.allKeys())
          subscription = (subscriber, keys.filter { !present.contains($0) })
        }
      }
      guard let (subscriber, missing) = subscription else { continue }
      try await subscriber.expectCovered(
        missing, "writes of another process that were acknowledged after changes() had returned")
    }
  }
}

private func checkReadability(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(context.byLevel(quick: 60, standard: 300, exhaustive: 5_000))
  let subscriber = try await ChangeSubscriber(to: engine, context)
  try await context.withWorker { worker in
    async let written: Void = context.perform(
      MakeChanges(keys.map { .write([$0.value]) }, at: context.place), in: worker)
    // Each key is written once, so that an element that names it can only be for that write.
    try await subscriber.expectCovered(keys, "writes in another process") { change in
      guard case .keys(let found) = change else { return }
      for key in found.intersection(keys) {
        try expect(
          try await engine.keyExists(key), is: true, "keyExists(_:) of \(key) after an element that named it")
      }
    }
    try await written
    try expect(try await engine.keyCount(), is: keys.count, "keyCount() after the last element")
  }
}

// MARK: - Kills

private func checkKills(_ context: CheckContext) async throws {
  let steps = NumberedSteps(batches: NumberedBatches(seed: context.budget.seed), kind: .single)
  var processKiller = ProcessKiller(seed: ~context.budget.seed)
  let engine = try await context.open()
  let subscriber = try await ChangeSubscriber(to: engine, context)
  var next = 1
  for round in 0...(context.budget.kills / 2) {
    context.noteProgress()
    let work = WriteSteps(place: context.place, steps: steps, first: next)
    let acknowledged = try await context.withWorker { worker in
      try await processKiller.kill(worker, at: .working(limit: 12), of: work).filter { $0 > 0 }
    }
    let changed = acknowledged.flatMap { steps.operations(of: $0) }.compactMap { $0.written?.key }
    try await subscriber.expectCovered(changed, "the writes of a process that was killed")
    let own = key("own \(round)")
    try await engine.write(data("v"), key: own)
    try await subscriber.expectCovered([own], "a write after another process had been killed")
    let theirs = key("theirs \(round)")
    try await context.withWorker { worker in
      try await context.perform(MakeChanges([.write([theirs.value])], at: context.place), in: worker)
    }
    try await subscriber.expectCovered([theirs], "a write by another process after one had been killed")
    next = (acknowledged.last ?? next - 1) + 2
  }
}
