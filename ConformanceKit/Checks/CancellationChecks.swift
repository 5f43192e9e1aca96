#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Cancelled calls: rule C4.

extension CheckDefinition {
  @CheckList static var cancellationChecks: [CheckDefinition] {
    for change in Change.allCases {
      Check(
        .c4, "cancellation.of-\(change.name)",
        "a cancelled \(change.call) has done all of its work, or none and throws CancellationError"
      ) { context in
        let engine = try await context.open()
        for round in 0..<48 { try await checkCancellation(of: change, in: engine, round: round) }
      }
    }
    Check(
      .c4, "cancellation.of-transactions",
      "a cancelled transaction has done all of its work, or none and throws CancellationError",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      for round in 0..<48 { try await checkCancellationOfTransaction(in: engine, round: round) }
    }
    Check(
      .c4, "cancellation.of-reads", "a cancelled read returns the whole answer or throws CancellationError"
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("k"))
      for method in ReadMethod.allCases {
        for delay in [nil, 0, 1, 3] {
          switch await cancelled(
            after: delay, { try await method.finds(data("v"), under: key("k"), in: engine) })
          {
          case .success(let found):
            try expect(found, "a cancelled \(method.call) returned, and had not found the entry")
          case .failure(let error): try expectCancellation(error, method.call)
          }
        }
      }
      try await checkCancellationOfLongReads(context)
    }
    Check(
      .c4, "cancellation.of-close",
      "a cancelled close() has closed the engine, or throws CancellationError and can be called again"
    ) { context in
      for delay in [nil, 0, 1, 2] {
        let place = context.root.appending(path: "after \(delay ?? -1)", directoryHint: .isDirectory)
        let engine = try await context.open(place)
        try await engine.write(data("v"), key: key("k"))
        if case .failure(let error) = await cancelled(after: delay, { try await engine.close() }) {
          try expectCancellation(error, "close()")
          try await engine.close()
        }
        guard context.capabilities.contains(.persistent) else { continue }
        // Whether it can be closed twice is for rule O3 to say.
        engine.release()
        let reopened = try await context.open(place)
        try await expectStored([(key("k"), data("v"))], in: reopened)
      }
    }
    Check(
      .c4, "cancellation.leaves-a-working-engine", "after many cancelled calls the engine works as before"
    ) {
      context in
      let engine = try await context.open()
      for round in 0..<60 {
        _ = await cancelled(after: round % 4) {
          try await engine.write(data("v"), key: key("k \(round % 7)"))
        }
        _ = await cancelled(after: round % 3) { try await engine.readAllDataAndKeys().count }
      }
      // What was cancelled on its way to a server may happen yet.
      try await ExpectedContents.settle(engine)
      try await engine.removeAllData()
      try await engine.write(entries(keys(10)))
      try await expectStored(entries(keys(10)), in: engine)
    }
  }
}

/// The calls that change something.
private enum Change: String, CaseIterable, Sendable {
  case write, writeMany, writeEntries, remove, removeMany, removeAll, apply

  var name: String { rawValue }

  var call: String {
    switch self {
    case .write: "write(_:key:)"
    case .writeMany: "write(_:) of many"
    case .writeEntries: wayOfImporting.name
    case .remove: "remove(key:)"
    case .removeMany: "remove(keys:)"
    case .removeAll: "removeAllData()"
    case .apply: "apply(_:)"
    }
  }

  func perform(in engine: EngineUnderTest) async throws {
    switch self {
    case .write: try await engine.write(data("new"), key: Self.keys[0])
    case .writeMany: try await engine.write(Self.keys.map { ($0, data("new")) })
    case .writeEntries: try await wayOfImporting.write(engine, Self.keys.map { ($0, data("new")) })
    case .remove: try await engine.remove(key: Self.keys[0])
    case .removeMany: try await engine.remove(keys: Self.keys)
    case .removeAll: try await engine.removeAllData()
    case .apply: try await engine.apply([.removeAll] + Self.keys.map { .write(data("new"), key: $0) })
    }
  }

  static let keys = ConformanceKit.keys(12)

  /// What is there if all of the work has been done.
  var result: [(key: CacheKey, data: Data)] {
    let old = Self.keys.map { (key: $0, data: data("old")) }
    let new = Self.keys.map { (key: $0, data: data("new")) }
    return switch self {
    case .write: [new[0]] + old.dropFirst()
    case .writeMany, .writeEntries, .apply: new
    case .remove: Array(old.dropFirst())
    case .removeMany, .removeAll: []
    }
  }
}

/// Reads many entries, of which an engine may return the pages that it has read when it sees that the call is cancelled.
private func checkCancellationOfLongReads(_ context: CheckContext) async throws {
  let wanted = context.byLevel(quick: 500, standard: 2_500, exhaustive: 2_500)
  let affordable = try await context.affordableEntries()
  let count = min(wanted, max(20, min(affordable.reads / 100, affordable.writes)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries in each read") }
  let engine = try await context.open(context.root.appending(path: "many", directoryHint: .isDirectory))
  let keys = keys(count)
  try await engine.write(entries(keys))
  for method in ReadMethod.allCases where !method.isOfOneKey {
    context.noteProgress()
    let read = { @Sendable in try await method.found(of: keys, in: engine).count }
    let end = try await turns { _ = try await read() }
    for delay in [end / 4, end / 2, end / 4 * 3] {
      switch await cancelled(after: delay, read) {
      case .success(let found):
        try expect(found, is: count, "what a cancelled \(method.call) of \(count) returned")
      case .failure(let error): try expectCancellation(error, method.call)
      }
    }
  }
}

private func checkCancellation(of change: Change, in engine: EngineUnderTest, round: Int) async throws {
  let old = Change.keys.map { (key: $0, data: data("old")) }
  try await engine.write(old)
  // Cancelled before the call, at once after, and later and later; several times each.
  let outcome = await cancelled(after: round % 8 == 0 ? nil : round % 8 - 1) {
    try await change.perform(in: engine)
  }
  try await expectAllOrNothing(outcome, change.call, from: old, to: change.result, in: engine)
}

/// Fails unless a cancelled change of ``Change/keys`` has done all of its work, or has thrown and done none.
private func expectAllOrNothing(
  _ outcome: Result<Void, any Error>, _ call: String, from old: [(key: CacheKey, data: Data)],
  to new: [(key: CacheKey, data: Data)], in engine: EngineUnderTest
) async throws {
  let isUnknown = if case .failure(let error) = outcome { engine.leavesOutcomeUnknown(error) } else { false }
  if isUnknown { try await ExpectedContents.settle(engine) }
  var found: [(key: CacheKey, data: Data)] = []
  for key in Change.keys { if let data = try await engine.read(key: key) { found.append((key, data)) } }
  switch outcome {
  case .success:
    try expect(found, are: new, "the entries after a cancelled \(call) that did not throw")
  case .failure where isUnknown:
    let isUnchanged = found.elementsEqual(old) { $0.key == $1.key && $0.data == $1.data }
    try expect(
      found, are: isUnchanged ? old : new, "the entries after a cancelled \(call) threw outcomeUnknown")
  case .failure(let error):
    try expectCancellation(error, call)
    try expect(found, are: old, "the entries after \(call) threw CancellationError")
  }
}

/// The same for a transaction that changes all keys.
private func checkCancellationOfTransaction(in engine: EngineUnderTest, round: Int) async throws {
  let keys = Change.keys
  let old = keys.map { (key: $0, data: data("old")) }
  try await engine.write(old)
  let outcome = await cancelled(after: round % 8 == 0 ? nil : round % 8 - 1) {
    try await engine.withTransaction { transaction in
      try transaction.remove(key: keys[0])
      for key in keys.dropFirst() where try transaction.keyExists(key) {
        try transaction.write(data("new"), key: key)
      }
    }
  }
  try await expectAllOrNothing(
    outcome, "transaction", from: old, to: keys.dropFirst().map { ($0, data("new")) }, in: engine)
}

private func expectCancellation(_ error: any Error, _ call: String) throws {
  let error = (error as? CallFailure)?.error ?? error
  if error is CancellationError { return }
  throw Violation("a cancelled \(call) threw \(shortened(String(describing: error))), not CancellationError")
}

/// What a call gives in a task that is cancelled: before the call if `yields` is nil, else once this task has let
/// others run that many times.
private func cancelled<Value: Sendable>(
  after yields: Int?, _ call: @escaping @Sendable () async throws -> Value
) async -> Result<Value, any Error> {
  let task = Task { @concurrent in
    if yields == nil { withUnsafeCurrentTask { $0?.cancel() } }
    return try await call()
  }
  if let yields {
    for _ in 0..<yields { await Task.yield() }
    task.cancel()
  }
  return await task.result
}
