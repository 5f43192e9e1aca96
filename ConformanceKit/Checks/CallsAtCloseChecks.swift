#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Calls in progress at close(): rules O3 and R4.

extension CheckDefinition {
  @CheckList static var callsAtCloseChecks: [CheckDefinition] {
    Check(
      .o3, "closing.waits",
      "after reopening, a write that was acknowledged during close() is there, and one that threw closed is "
        + "not",
      needs: .persistent
    ) { context in
      for round in 0..<5 { try await checkClosingUnderLoad(context, round: round) }
    }
    Check(
      .o3, "closing.cuts-no-batch",
      "a batch in progress at close() does all of its work, or none and throws closed",
      needs: [.persistent, .atomicBatches]
    ) { context in
      let wanted = context.byLevel(quick: 400, standard: 4_000, exhaustive: 10_000)
      let count = min(wanted, max(20, try await context.affordableEntries().writes / 40))
      if count < wanted { context.noteShortfall("\(count) of \(wanted) entries in each batch") }
      for method in ChangeMethod.all(context.capabilities) where !method.isOfOneKey {
        for part in 1...3 { try await closeDuring(method, of: entries(keys(count)), part, context) }
      }
    }
    Check(
      .r4, "closing.cuts-no-read",
      "a read of many entries in progress at close() returns all of them, or throws closed"
    ) { context in
      let wanted = context.byLevel(quick: 2_000, standard: 10_000, exhaustive: 20_000)
      let affordable = try await context.affordableEntries()
      let count = min(wanted, max(20, min(affordable.writes / 40, affordable.reads / 100)))
      if count < wanted { context.noteShortfall("\(count) of \(wanted) entries in each read") }
      for method in ReadMethod.allCases where !method.isOfOneKey {
        var number = 0
        try await interrupt(atLeast: 4, within: .milliseconds(200)) { fraction in
          let place = context.root.appending(
            path: "\(method.rawValue) \(number)", directoryHint: .isDirectory)
          number += 1
          try await closeDuring(method, of: keys(count), fraction, at: place, context)
        }
      }
    }
  }
}

/// Closes while many tasks write, and compares the acknowledged writes with the contents afterwards.
private func checkClosingUnderLoad(_ context: CheckContext, round: Int) async throws {
  let place = context.root.appending(path: "round \(round)", directoryHint: .isDirectory)
  let former = try await context.open(place)
  // A reopened engine may load existing entries in its first calls.
  let kept = keys(20, prefix: "kept-")
  try await former.write(entries(kept))
  let engine = try await context.reopen(former, at: place)
  async let outcomes = gather(0..<16) { task in
    var (acknowledged, refused): ([CacheKey], [CacheKey]) = ([], [])
    for key in keys(20, prefix: "task-\(task)-") {
      do {
        try await engine.write(value(for: key), key: key)
        acknowledged.append(key)
      } catch let failure as CallFailure {
        guard (failure.error as? StorageError)?.code != .closed else {
          refused.append(key)
          break
        }
        throw Violation(
          "during close(), \(failure), which is not StorageError with code closed")
      }
    }
    return (acknowledged, refused)
  }
  for _ in 0..<(round * 20) { await Task.yield() }
  try await engine.close()
  let (acknowledged, refused) = (try await outcomes.flatMap(\.0), try await outcomes.flatMap(\.1))
  // The engine may have acknowledged all writes, if its close() has nothing to do, or none.
  let reopened = try await context.reopen(engine, at: place)
  try await expectStored(entries(kept + acknowledged), absent: refused, in: reopened)
  try await context.close(reopened)
}

/// Closes an engine after a fraction of the duration of a read, and checks that the read returned everything or threw.
private func closeDuring(
  _ method: ReadMethod, of keys: [CacheKey], _ fraction: Double, at place: URL, _ context: CheckContext
) async throws {
  context.noteProgress()
  let engine = try await context.open(place)
  try await engine.write(entries(keys))
  let read = { @Sendable in try await method.found(of: keys, in: engine).count }
  let end = try await turns { _ = try await read() }
  let task = await started(read, turns: Int(Double(end) * fraction))
  try await engine.close()
  try expectWholeOrClosed(await task.result, of: keys.count, by: method)
  engine.release()
}

/// Expects that a read which was in progress at `close()` returned every entry or threw `closed`.
func expectWholeOrClosed(_ result: Result<Int, any Error>, of count: Int, by method: ReadMethod) throws {
  switch result {
  case .success(let found):
    try expect(found, is: count, "what \(method.call) returned that was in progress at close()")
  case .failure(let error): try expectClosed(error)
  }
}

/// Rethrows the error of a call that was in progress at `close()` unless its code is `closed`.
private func expectClosed(_ error: any Error) throws {
  guard (((error as? CallFailure)?.error ?? error) as? StorageError)?.code == .closed else { throw error }
}

/// Closes an engine after some quarters of the duration of a call, and checks that the call took effect completely or
/// not at all.
private func closeDuring(
  _ method: ChangeMethod, of entries: [(key: CacheKey, data: Data)], _ quarters: Int, _ context: CheckContext
) async throws {
  context.noteProgress()
  let place = context.root.appending(path: "\(method.rawValue) \(quarters)", directoryHint: .isDirectory)
  let engine = try await context.open(place)
  func prepare() async throws {
    if method.removes { try await engine.write(entries) } else { try await engine.removeAllData() }
  }
  let call = { @Sendable in try await method.perform(entries, in: engine) }
  try await prepare()
  let end = try await turns(of: call)
  context.noteProgress()
  try await prepare()
  let task = await started(call, turns: end * quarters / 4)
  try await engine.close()
  let result = await task.result
  engine.release()
  let reopened = try await context.open(place)
  let found = try await reopened.read(keys: entries.map(\.key)).count
  let what = "the number of entries, of \(entries.count), after \(method.call) during close()"
  let (before, after) = method.removes ? (entries.count, 0) : (0, entries.count)
  if found != before, found != after {
    throw Violation("\(what) was \(found)", rule: method == .removeAll ? nil : .w4)
  }
  switch result {
  case .success: try expect(found, is: after, "\(what) that returned")
  case .failure(let error):
    try expectClosed(error)
    try expect(found, is: before, "\(what) that threw closed")
  }
  try await context.close(reopened)
}
