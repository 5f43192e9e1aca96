#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// First calls after an opening that are made by many tasks, or cancelled: rules C1 and C4. An engine may open its files,
// connect or load its entries in its first call.

/// Has many tasks make the first calls after an opening: each of them may load the entries, and undo what the others
/// have changed meanwhile.
func checkFirstCallsAtOnce(_ context: CheckContext) async throws {
  guard context.capabilities.contains(.persistent) else { return }
  let place = context.root.appending(path: "first calls at once", directoryHint: .isDirectory)
  var engine = try await context.open(place)
  let (kept, removed) = (keys(40, prefix: "kept-"), keys(12, prefix: "removed-"))
  var new: [CacheKey] = []
  try await engine.write(entries(kept))
  for round in 0..<3 {
    context.noteProgress()
    try await engine.write(entries(removed))
    engine = try await context.reopen(engine, at: place)
    let written = keys(12, prefix: "new in round \(round) ")
    try await gather(0..<36) { [engine] task in
      let number = task / 3
      switch task % 3 {
      case 0: try await engine.write(value(for: written[number]), key: written[number])
      case 1: try await engine.remove(key: removed[number])
      default:
        let found = try await engine.read(key: kept[number])
        try expect(
          found, is: value(for: kept[number]),
          "read(key:) of \(kept[number]), one of many concurrent first calls after opening,")
      }
    }
    new += written
    do {
      try await expectStored(entries(kept + new), absent: removed, in: engine)
    } catch let violation as Violation {
      throw Violation("after many concurrent first calls after opening, \(violation.description)")
    }
  }
  try await context.close(engine)
}

/// Cancels the first call after an opening, of several kinds. The cancellation must not affect later calls.
func checkCancelledFirstCalls(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "cancelled first calls", directoryHint: .isDirectory)
  let (own, after) = (key("own"), key("after"))
  var calls: [(name: String, call: @Sendable (EngineUnderTest) async throws -> Void)] = []
  for method in [ReadMethod.read, .readAllDataAndKeys] {
    calls.append((method.call, { _ = try await method.found(of: [own], in: $0) }))
  }
  for method in ChangeMethod.all(context.capabilities) where [.write, .apply, .transaction].contains(method) {
    calls.append((method.call, { try await method.perform([(own, data("v"))], in: $0) }))
  }
  if context.capabilities.contains(.changeFeed) {
    calls.append(("changes()", { _ = try await $0.changes() }))
  }
  for (name, call) in calls {
    for delay in [nil, 1] {
      context.noteProgress()
      let engine = try await context.open(place)
      if case .failure(let error) = await cancelled(after: delay, { try await call(engine) }) {
        // A server may still execute the change.
        if engine.leavesOutcomeUnknown(error) {
          try await ExpectedContents.settle(engine)
        } else {
          try expectCancellation(error, "\(name), the first call after opening,")
        }
      }
      do {
        try await engine.write(data(name), key: after)
        try expect(try await engine.read(key: after), is: data(name), "read(key:) of what was written")
        try await call(engine)
        try await context.close(engine)
      } catch let failure as CallFailure {
        throw Violation("after \(name), the first call after opening, was cancelled, \(failure)")
      }
    }
  }
}
