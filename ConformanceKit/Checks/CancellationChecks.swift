#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Cancelled calls: rule C4.

extension CheckDefinition {
  @CheckList static var cancellationChecks: [CheckDefinition] {
    for change in ChangeMethod.allCases {
      Check(
        .c4, "cancellation.of-\(change.rawValue)",
        "a cancelled \(change.call) does all of its work, or none and throws CancellationError",
        needs: change.needs
      ) { context in
        let engine = try await context.open()
        try await checkCancellation(of: change, in: engine)
      }
    }
    Check(
      .c4, "cancellation.of-reads", "a cancelled read returns its complete result or throws CancellationError"
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("k"))
      for method in ReadMethod.allCases {
        for delay in [nil, 0, 1, 3] {
          switch await cancelled(
            after: delay, { try await method.finds(data("v"), under: key("k"), in: engine) })
          {
          case .success(let found):
            try expect(found, "a cancelled \(method.call) returned without the entry")
          case .failure(let error): try expectCancellation(error, method.call)
          }
        }
      }
      try await checkCancellationOfLongReads(context)
    }
    Check(
      .c4, "cancellation.of-changes",
      "a cancelled changes() returns a working stream, or throws CancellationError",
      needs: .changeFeed
    ) { context in
      let engine = try await context.open()
      let end = try await turns { _ = try await engine.changes() }
      let delays = [nil, 0, 1, 2, end / 3, end / 3 * 2]
      for round in 0..<18 {
        context.noteProgress()
        let key = key("round \(round)")
        switch await cancelled(
          after: delays[round % delays.count], { try await ChangeSubscriber(to: engine, context) })
        {
        case .success(let subscriber):
          try await engine.write(data("v"), key: key)
          try await subscriber.expectCovered([key], "a write after a cancelled changes() that returned")
        case .failure(let error): try expectCancellation(error, "changes()")
        }
      }
    }
    Check(
      .c4, "cancellation.of-close",
      "a cancelled close() closes the engine, or throws CancellationError and can be called again"
    ) { context in
      let other = try await context.open(context.root.appending(path: "other", directoryHint: .isDirectory))
      let end = try await turns { try await other.close() }
      for (number, delay) in [nil, 0, 1, 2, end / 3, end / 3 * 2].enumerated() {
        let place = context.root.appending(path: "place \(number)", directoryHint: .isDirectory)
        let engine = try await context.open(place)
        try await engine.write(data("v"), key: key("k"))
        if case .failure(let error) = await cancelled(after: delay, { try await engine.close() }) {
          try expectCancellation(error, "close()")
          try await engine.close()
        }
        guard context.capabilities.contains(.persistent) else { continue }
        // Rule O3 covers closing it twice.
        engine.release()
        let reopened = try await context.open(place)
        try await expectStored([(key("k"), data("v"))], in: reopened)
      }
    }
    Check(
      .c4, "cancellation.of-opening",
      "a cancelled opening returns an engine, or throws CancellationError and holds no lock",
      needs: .persistent
    ) { try await checkCancellationOfOpening($0) }
    Check(
      .c4, "cancellation.leaves-a-working-engine", "the engine works after many cancelled calls"
    ) {
      context in
      let engine = try await context.open()
      for round in 0..<60 {
        _ = await cancelled(after: round % 4) {
          try await engine.write(data("v"), key: key("k \(round % 7)"))
        }
        let method = ReadMethod.ofManyValues[round % ReadMethod.ofManyValues.count]
        _ = await cancelled(after: round % 3) { try await method.found(of: keys(10), in: engine).count }
      }
      let other = try await context.openAnotherIfPossible()
      if let other { try await cancelBehind(other, engine, context) }
      // A server may still execute a change that was cancelled while it was being sent.
      try await ExpectedContents.settle(engine)
      if let other { try await other.write(data("v"), key: key("by another")) }
      try await engine.removeAllData()
      try await engine.write(entries(keys(10)))
      try await expectStored(entries(keys(10)), in: engine)
      // A cancelled read may have left something that later ones use.
      let stored = Set(entries(keys(10)).map(\.data))
      for method in ReadMethod.ofManyValues {
        let found = try await method.found(of: keys(10), in: engine).compactMap { $0 }
        try expect(
          found.count == stored.count && Set(found) == stored,
          "\(method.call) after many cancelled calls returned other values than the stored ones")
      }
      try await checkCancelledFirstCalls(context)
    }
  }
}

/// Cancels reads of many entries. An engine that notices the cancellation may return the pages that it has read so far.
private func checkCancellationOfLongReads(_ context: CheckContext) async throws {
  let wanted = context.byLevel(quick: 1_000, standard: 2_500, exhaustive: 2_500)
  let affordable = try await context.affordableEntries()
  let count = min(wanted, max(20, min(affordable.reads / 100, affordable.writes)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries in each read") }
  let engine = try await context.open(context.root.appending(path: "many", directoryHint: .isDirectory))
  let keys = keys(count)
  try await engine.write(entries(keys))
  for method in ReadMethod.allCases where !method.isOfOneKey {
    context.noteProgress()
    let read = { @Sendable in try await method.found(of: keys, in: engine).count }
    // The first call may load what later ones use.
    let end = min(try await turns { _ = try await read() }, try await turns { _ = try await read() })
    try await interrupt(atLeast: 12, within: .milliseconds(100)) { fraction in
      let result = await cancelled(after: Int(Double(end) * fraction), read)
      try expectWholeOrCancelled(result, of: count, by: method)
    }
  }
  let end = try await turns { try await engine.verify() }
  for delay in [nil, 0, end / 4, end / 2, end / 4 * 3] {
    context.noteProgress()
    if case .failure(let error) = await cancelled(after: delay, { try await engine.verify() }) {
      try expectCancellation(error, "verify()")
    }
  }
}

/// Expects that a cancelled read returned every entry or threw `CancellationError`.
func expectWholeOrCancelled(_ result: Result<Int, any Error>, of count: Int, by method: ReadMethod) throws {
  switch result {
  case .success(let found):
    try expect(found, is: count, "what a cancelled \(method.call) of \(count) returned")
  case .failure(let error): try expectCancellation(error, method.call)
  }
}

private func checkCancellationOfOpening(_ context: CheckContext) async throws {
  let other = context.root.appending(path: "other", directoryHint: .isDirectory)
  let end = try await turns { try await context.openUnregistered(other).close() }
  let place = context.place
  for delay in [nil, 0, 1, 2, end / 4, end / 2, end / 4 * 3] {
    context.noteProgress()
    switch await cancelled(after: delay, { try await context.openUnregistered(place) }) {
    case .success(let engine):
      try await engine.write(data("v"), key: key("k"))
      try await engine.close()
      engine.release()
    case .failure(let error): try expectCancellation(error, "opening")
    }
    let engine = try await context.openUnregistered(place)
    try await engine.write(data("v"), key: key("k"))
    try await engine.close()
    engine.release()
    try await expectNoOpenFiles(context, after: "a cancelled opening, and another one that was closed")
  }
}

/// Cancels calls that may have to wait for another engine on the place. Afterwards both engines write.
private func cancelBehind(
  _ other: EngineUnderTest, _ engine: EngineUnderTest, _ context: CheckContext
) async throws {
  let changes = ChangeMethod.all(context.capabilities)
  let hasTransactions = context.capabilities.contains(.transactions)
  for (number, change) in changes.enumerated() {
    context.noteProgress()
    // Without a long transaction body, the calls only overlap by chance.
    let body =
      hasTransactions
      ? PausedBody(in: other, milliseconds: 30) { transaction, pause in
        try transaction.write(data("v"), key: key("by a body"))
        pause()
      } : nil
    try await body?.begin()
    let busy = Task { @concurrent in
      for _ in 0..<3 { try await other.write(data("v"), key: key("by another")) }
    }
    for step in 0..<3 {
      _ = await cancelled(after: step * (2 + number)) {
        try await change.perform([(key("k \(step)"), data("cancelled"))], in: engine)
      }
    }
    try await busy.value
    try await body?.end()
    try await engine.write(data("v"), key: key("after"))
  }
}

/// Cancels the change before the call, right after it starts, and later and later; several times each.
private func checkCancellation(of change: ChangeMethod, in engine: EngineUnderTest) async throws {
  let all = keys(12)
  let changed = Array(change.isOfOneKey ? all.prefix(1) : all.prefix(11))
  let old = all.map { (key: $0, data: data("old")) }
  let call = { @Sendable in
    switch change {
    // These do several things in one call.
    case .apply: try await engine.apply([.removeAll] + changed.map { .write(data("new"), key: $0) })
    case .transaction:
      try await engine.withTransaction { transaction in
        try transaction.remove(key: all[11])
        for key in all where try transaction.keyExists(key) { try transaction.write(data("new"), key: key) }
      }
    default: try await change.perform(changed.map { ($0, data("new")) }, in: engine)
    }
  }
  for cycle in 0..<6 {
    var end = 7
    if !cycle.isMultiple(of: 2) {
      // On a busy machine, a small number of yields does not reach the later parts of a call.
      try await engine.write(old)
      end = try await turns(of: call)
    }
    for delay in [nil] + (0..<7).map({ end * $0 / 7 }) {
      try await engine.write(old)
      let outcome = await cancelled(after: delay, call)
      try await expectAllOrNothing(of: change, changed, before: old, after: outcome, in: engine)
    }
  }
  try await engine.write(old)
  for point in try await suspensionPoints(of: call, atMost: 24) {
    try await engine.write(old)
    let outcome = try await held(at: point, call, meanwhile: { $0.cancel() })
    try await expectAllOrNothing(of: change, changed, before: old, after: outcome, in: engine)
  }
  // Reveals entries that were counted or listed before a call noticed that it was cancelled.
  try await ExpectedContents.settle(engine)
  try await expectAllWaysAgree(in: engine)
}

/// Expects that a cancelled change has been made if the call returned, and has not been made if it threw.
///
/// - Parameter old: The entries before the change.
private func expectAllOrNothing(
  of change: ChangeMethod, _ changed: [CacheKey], before old: [(key: CacheKey, data: Data)],
  after outcome: Result<Void, any Error>, in engine: EngineUnderTest
) async throws {
  let rest = [.removeAll, .apply, .transaction].contains(change) ? [] : old.dropFirst(changed.count)
  let new = change.removes ? [] : changed.map { (key: $0, data: data("new")) }
  let isUnknown = if case .failure(let error) = outcome { engine.leavesOutcomeUnknown(error) } else { false }
  if isUnknown { try await ExpectedContents.settle(engine) }
  var found: [(key: CacheKey, data: Data)] = []
  for (key, _) in old { if let data = try await engine.read(key: key) { found.append((key, data)) } }
  switch outcome {
  case .success:
    try expect(found, are: new + rest, "the entries after a cancelled \(change.call) that did not throw")
  case .failure where isUnknown:
    let isUnchanged = found.elementsEqual(old) { $0.key == $1.key && $0.data == $1.data }
    try expect(
      found, are: isUnchanged ? old : new + rest,
      "after a cancelled \(change.call) had thrown outcomeUnknown, the entries")
  case .failure(let error):
    try expectCancellation(error, change.call)
    try expect(found, are: old, "after \(change.call) had thrown CancellationError, the entries")
  }
}

/// Fails unless this is an error that a cancelled call may throw.
func expectCancellation(_ error: any Error, _ call: String) throws {
  let error = (error as? CallFailure)?.error ?? error
  if error is CancellationError { return }
  throw Violation("a cancelled \(call) threw \(shortened(String(describing: error))), not CancellationError")
}

/// The result of a call in a task that is cancelled: before the call if `turns` is nil, otherwise after this
/// task has yielded its thread that many times or the call has returned.
func cancelled<Value: Sendable>(
  after turns: Int?, _ call: @escaping @Sendable () async throws -> Value
) async -> Result<Value, any Error> {
  let isDone = Flag()
  let task = Task { @concurrent in
    defer { isDone.set() }
    if turns == nil { withUnsafeCurrentTask { $0?.cancel() } }
    return try await call()
  }
  if let turns {
    await yieldThread(turns, until: isDone)
    task.cancel()
  }
  return await task.result
}
