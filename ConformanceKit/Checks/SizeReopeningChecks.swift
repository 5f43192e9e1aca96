#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Large changes after reopening: rule W6. An engine may hold a whole change in memory, but persist only a part of it.

extension CheckDefinition {
  @CheckList static var sizeReopeningChecks: [CheckDefinition] {
    Check(
      .w6, "sizes.reopened",
      "a call of any method that writes or removes more than a thousand entries has the same effect after "
        + "reopening",
      needs: .persistent
    ) { try await checkReopening($0) }
  }
}

private func checkReopening(_ context: CheckContext) async throws {
  let writing = ChangeMethod.writing(context.capabilities).filter { !$0.isOfOneKey }
  let removing = waysOfRemoving(context.capabilities).filter { $0.name != ChangeMethod.remove.call }
  let wanted = context.byLevel(quick: 1_025, standard: 10_001, exhaustive: 100_001)
  let slowest = writing.contains(.transaction) ? wayOfTransactions : wayOfBatches
  let affordable = try await context.affordableEntries(within: 2, by: slowest)
  let count = min(wanted, max(101, min(affordable.reads, affordable.writes) / 8))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries") }
  var place = ReopenedPlace(
    context: context, engine: try await context.open(), keys: (0..<count).map(GrowingPlace.key))
  for (number, method) in writing.enumerated() {
    // Overwrites what the previous method has written.
    try await method.perform(entries(place.keys, version: number + 1), in: place.engine)
    try await place.reopen(after: method.call)
  }
  for (number, way) in removing.enumerated() {
    if number > 0 { try await place.engine.write(entries(place.keys, version: number)) }
    try await way.remove(place.engine, place.keys)
    try await place.reopen(after: way.name)
  }
}

/// A place whose entries must be the same after reopening. Other rules cover whether they were right before.
private struct ReopenedPlace {
  let context: CheckContext
  private(set) var engine: EngineUnderTest
  let keys: [CacheKey]
  private var count = 0

  init(context: CheckContext, engine: EngineUnderTest, keys: [CacheKey]) {
    (self.context, self.engine, self.keys) = (context, engine, keys)
  }

  /// Reopens the place, alternately without `close()` and with it.
  mutating func reopen(after what: String) async throws {
    context.noteProgress()
    let (entries, total) = (try await engine.readDataAndKeys(keys: keys), try await engine.keyCount())
    let isClosed = count % 2 == 1
    count += 1
    if isClosed {
      engine = try await context.reopen(engine)
    } else {
      engine.release()
      engine = try await context.open()
    }
    context.noteProgress()
    let when = "after \(what) of \(keys.count) entries and reopening \(isClosed ? "with" : "without") close()"
    try expect(
      try await engine.readDataAndKeys(keys: keys), are: entries, "\(when), readDataAndKeys(keys:)")
    try expect(try await engine.keyCount(), is: total, "\(when), keyCount()")
  }
}
