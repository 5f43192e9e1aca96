#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Batches, transactions and removals of any size: rules W1 to W5, C4, D1, D2, T1 and T2.

extension CheckDefinition {
  @CheckList static var batchSizeChecks: [CheckDefinition] {
    Check(.w1, "sizes.batches", "a batch of any size stores all its entries, new ones and overwrites") {
      context in
      try await context.checkSizes({ $0.batches }, .fills) { place, count in
        for way in [wayOfBatches, wayOfImporting] {
          try await place.overwrite(to: count) { try await way.write($0, $1) }
          try await expectStored(place.entries, in: place.engine)
          try await expectListedOnce(place, "after \(way.name)")
        }
      }
    }
    Check(
      .t1, "sizes.transactions",
      "a transaction performs any number of writes, and its body can read any number of entries",
      needs: .transactions
    ) { context in
      try await context.checkSizes({ $0.ends.filter { $0 < 5_000 } }, .fills, by: wayOfTransactions) {
        place, count in
        for _ in place.rounds {
          let before = place.entries
          let old = try await place.engine.readAllEntries()
          if !old.isEmpty { try await letClockAdvance() }
          let written = try await window {
            try await place.overwrite(to: count) { engine, entries in
              // In reverse, as in the check of timestamps.
              let inTurn = Array(entries.prefix(before.count).reversed()) + entries.dropFirst(before.count)
              try await engine.withTransaction { transaction in
                try expectReadable(before, in: transaction)
                for (key, data) in inTurn {
                  try transaction.write(data, key: key)
                  context.noteProgress()
                }
                try expectReadable(entries, in: transaction)
              }
            }
          }
          try await expectStored(place.entries, in: place.engine)
          try await expectListedOnce(place, "after \(wayOfTransactions.name)")
          try await expectTimesAndOrder(of: place, since: old, written)
        }
      }
    }
    Check(.w5, "sizes.apply", "apply(_:) performs any number of operations in the given order") {
      context in
      try await context.checkSizes({ $0.batches }, .fills) { place, count in
        for _ in place.rounds {
          try await place.overwrite(to: count) { engine, entries in
            // Removals of keys that are written later in the batch, and writes that are overwritten later, have no effect
            // in the end.
            try await engine.apply(
              entries.enumerated().flatMap { number, entry -> [StorageOperation] in
                let write = StorageOperation.write(entry.data, key: entry.key)
                switch number % 5 {
                case 1 where count > 1: return [.remove(key: entry.key), write]
                case 3: return [.write(data("too early"), key: entry.key), write]
                default: return [write]
                }
              })
          }
          try await expectStored(place.entries, in: place.engine)
          try await expectListedOnce(place, "after \(wayOfApplying.name)")
        }
      }
    }
    Check(
      .w3, "sizes.repeats-in-batches",
      "in a batch of any size, the last entry for a key wins, however far it is from the others"
    ) { context in
      try await context.checkSizes({ $0.batches.filter { $0 > 1 } }, .fills) { place, count in
        try await expectLastToWin(in: place.engine, count, wayOfBatches, version: count * 2)
      }
      // An engine may divide the batches of each method in another way.
      try await context.checkSizes({ Array($0.ends.suffix(1)) }, .fills) { place, count in
        try await expectLastToWin(in: place.engine, count, wayOfImporting, version: 1)
        try await expectOrderOfOperations(in: place.engine, count, version: 3)
      }
    }
    Check(
      .w4, "sizes.rejected-batches",
      "an invalid key at the end of a batch of any size rejects the whole batch, and nothing is written"
    ) { context in
      try await context.checkSizes({ $0.counts }, .changes) { place, count in
        let kept = Array(place.keys.prefix(20) + place.keys.dropFirst(20).suffix(20))
        let new = (0..<count).map { key("new \($0)") }
        let bad = key("")
        let ways: [(String, @Sendable (EngineUnderTest) async throws -> Void)] = [
          ("write(_:)", { try await $0.write(entries(new + [bad])) }),
          ("writeEntries(_:)", { try await wayOfImporting.write($0, entries(new + [bad])) }),
          (
            "apply(_:)",
            { try await $0.apply([.removeAll] + (new + [bad]).map { .write(data("v"), key: $0) }) }
          ),
          ("remove(keys:)", { [keys = place.keys] in try await $0.remove(keys: keys + [bad]) }),
        ]
        for (method, call) in ways {
          let what = "\(method) of \(count + 1) with an empty key at the end"
          try await expectError(.invalidKey, from: what) { try await call(place.engine) }
          let found = try await place.engine.read(keys: kept + new.suffix(20))
          try expect(found, is: kept.map { value(for: $0) }, "read(keys:) after \(what)")
        }
      }
    }
    Check(
      .w2, "sizes.timestamps",
      "a batch of any size sets updatedAt of all its entries, and overwrites keep createdAt and their "
        + "position"
    ) { context in
      let isExact = context.capabilities.contains(.atomicBatches)
      try await context.checkSizes({ $0.ends.filter { $0 < 20_000 } }, .fills) { place, count in
        let engine = place.engine
        try await engine.removeAllData()
        let created = try await window { try await place.overwrite(to: count) { try await $0.write($1) } }
        for way in [wayOfBatches, wayOfApplying] {
          try await letClockAdvance()
          let updated = try await window {
            // Overwrites in reverse order: if an engine moved each overwritten entry to the end, overwrites in the
            // existing order would not change it.
            try await place.overwrite(to: count) { try await way.write($0, $1.reversed()) }
          }
          let found = try await engine.readAllEntries()
          for entry in found {
            try expect(
              created.contains(entry.createdAt) && updated.contains(entry.updatedAt),
              "after \(way.name), readAllEntries() returned times for \(entry.key) other than those of the "
                + "batches that wrote it"
            )
          }
          for index in Set([0, count / 3, count / 2, count - 1]) {
            try await expect(created: created, updated: updated, place.keys[index], in: engine)
          }
          do {
            try expectOrder(of: found, place.keys, isExact: isExact)
          } catch let violation as Violation {
            throw Violation("after an overwrite by \(way.name), \(violation)", rule: .r6)
          }
        }
        try await expectTimesOfImport(place.keys, in: engine)
      }
    }
    Check(
      .c4, "sizes.cancelled-batches",
      "a cancelled batch of any size does all of its work, or none and throws CancellationError"
    ) { context in
      try await context.checkSizes({ $0.ends.filter { $0 < 20_000 } }, .fills) { place, count in
        try await CancelledBatches(
          keys: (0..<count).map(GrowingPlace.key), engine: place.engine, note: context.noteProgress
        ).check()
      }
    }
    Check(
      .c4, "sizes.cancelled-transactions",
      "a cancelled transaction of any size does all of its work, or none and throws CancellationError",
      needs: .transactions
    ) { context in
      try await context.checkSizes({ $0.ends.filter { $0 < 20_000 } }, .fills, by: wayOfTransactions) {
        place, count in
        try await CancelledBatches(
          keys: (0..<count).map(GrowingPlace.key), engine: place.engine, note: context.noteProgress
        ).checkTransactions()
      }
    }
    Check(
      .d1, "sizes.removals",
      "remove(keys:) of any size, with absent keys among them, removes its keys and no others"
    ) { context in
      try await context.checkSizes({ $0.ends }, .fills) { place, count in
        for way in 0..<2 {
          let others = [key("other"), key("key-5"), key("~")]
          try await place.overwrite(to: count) { try await $0.write($1 + entries(others)) }
          let gone = place.keys.enumerated().flatMap { number, key in
            number % 6 == 4 ? [GrowingPlace.absentKey(number), key, key] : [key]
          }
          if way == 0 {
            try await place.engine.remove(keys: gone)
          } else {
            try await place.engine.apply(gone.map { .remove(key: $0) })
          }
          try await expectStored(entries(others), absent: place.keys, in: place.engine)
        }
      }
    }
    Check(
      .d2, "sizes.removal-of-everything",
      "every method that removes everything does so for any number of entries"
    ) {
      context in
      try await context.checkSizes({ $0.ends }, .fills) { place, count in
        for method in [ChangeMethod.removeAll, .apply, .transaction]
        where context.capabilities.isSuperset(of: method.needs) {
          try await place.overwrite(to: count) { try await $0.write($1) }
          if method == .transaction {
            try await place.engine.withTransaction { [keys = place.keys] transaction in
              try transaction.removeAll()
              try expectReadable([], absent: keys, in: transaction)
            }
          } else {
            try await method.perform([.removeAll], in: place.engine)
          }
          do {
            try await expectEmpty(place.engine)
            try await expectStored([], absent: place.keys, in: place.engine)
          } catch let violation as Violation {
            throw Violation("after \(method.call), \(violation)", rule: violation.rule)
          }
          context.noteProgress()
        }
      }
    }
  }
}

/// Fails, by rule T2, unless every read of many entries in the body of a transaction returns exactly these entries.
private func expectReadable(
  _ entries: [(key: CacheKey, data: Data)], absent: [CacheKey] = [], in transaction: any StorageTransaction
) throws {
  let keys = entries.map(\.key)
  do {
    try expect(try transaction.keyCount(), is: keys.count, "keyCount() of a transaction")
    try expect(try transaction.allKeys(), areInAnyOrder: keys, "allKeys() of a transaction")
    try expect(
      try transaction.read(keys: keys + absent), is: entries.map(\.data), "read(keys:) of a transaction")
    let sorted = entries.sorted { $0.key < $1.key }
    try expect(try transaction.scan(.all, limit: nil), are: sorted, "scan(.all) of a transaction")
    guard let middle = sorted.dropFirst(sorted.count / 2).first?.key else { return }
    // Ranges that exclude some of the keys, so that an engine that reads page by page has to stop at the bound.
    let ranges: [(name: String, range: KeyRange)] = [
      ("up to a key", KeyRange(after: nil, upTo: middle)),
      ("after a key", KeyRange(after: middle, upTo: nil)),
      ("of a prefix", .prefix(String(middle.value.prefix(5)))),
    ]
    for (name, range) in ranges {
      try expect(
        try transaction.scan(range, limit: nil), are: sorted.filter { range.contains($0.key) },
        "a scan \(name) of a transaction")
    }
  } catch let violation as Violation {
    throw Violation(violation.description, rule: .t2)
  }
}

/// Cancels calls with many keys after part of their work may have been done.
private struct CancelledBatches {
  private typealias Call = (name: String, perform: @Sendable () async throws -> Void)

  let keys: [CacheKey]
  let engine: EngineUnderTest
  /// Reports progress.
  let note: @Sendable () -> Void

  func check() async throws {
    let (entries, engine, keys) = (ConformanceKit.entries(self.keys), self.engine, self.keys)
    let operations = entries.map { StorageOperation.write($0.data, key: $0.key) }
    let write: Call = ("write(_:)", { try await engine.write(entries) })
    let importing: Call = (wayOfImporting.name, { try await wayOfImporting.write(engine, entries) })
    let apply: Call = ("apply(_:)", { try await engine.apply(operations) })
    let remove: Call = ("remove(keys:)", { try await engine.remove(keys: keys) })
    let removeAll: Call = ("removeAllData()", { try await engine.removeAllData() })
    // The number of turns of this task during the call, or during a similar one.
    try await engine.removeAllData()
    let (written, removed) = (
      try await turns(of: write.perform), try await turns(of: removeAll.perform)
    )
    try await cancel(write, after: 0, from: 0, to: keys.count)
    try await cancel(write, after: written / 2, from: 0, to: keys.count)
    try await cancel(importing, after: written / 2, from: 0, to: keys.count)
    try await cancel(apply, after: written / 2, from: 0, to: keys.count)
    try await cancel(apply, after: written / 4 * 3, from: 0, to: keys.count)
    try await cancel(remove, after: written / 4, from: keys.count, to: 0)
    try await cancel(remove, after: written / 2, from: keys.count, to: 0)
    try await cancel(removeAll, after: removed / 2, from: keys.count, to: 0)
  }

  func checkTransactions() async throws {
    let (entries, engine) = (ConformanceKit.entries(keys), self.engine)
    let transaction: Call = (
      wayOfTransactions.name, { try await wayOfTransactions.write(engine, entries) }
    )
    try await engine.removeAllData()
    let written = try await turns(of: transaction.perform)
    for part in [0, written / 4, written / 2, written / 4 * 3] {
      try await cancel(transaction, after: part, from: 0, to: keys.count)
    }
  }

  /// Starts the call, cancels it and checks that it took effect completely or not at all.
  private func cancel(_ call: Call, after turns: Int, from before: Int, to after: Int) async throws {
    note()
    try await engine.removeAllData()
    if before > 0 { try await engine.write(entries(keys)) }
    let task = await started(call.perform, turns: turns)
    task.cancel()
    let result = await task.result
    let isUnknown =
      if case .failure(let error) = result { engine.leavesOutcomeUnknown(error) } else { false }
    if isUnknown { try await ExpectedContents.settle(engine) }
    let found = try await engine.read(keys: keys).count
    let what = "the entries after a cancelled \(call.name)"
    try expect(
      try await engine.keyCount(), is: found,
      "keyCount() after a cancelled \(call.name), as read(keys:) found,")
    switch result {
    case .success: try expect(found, is: after, "\(what) that returned")
    case .failure where isUnknown:
      try expect(found, is: found == before ? before : after, "\(what) that threw outcomeUnknown")
    case .failure(let error):
      guard ((error as? CallFailure)?.error ?? error) is CancellationError else { throw error }
      try expect(found, is: before, "\(what) that threw CancellationError")
    }
  }
}
