#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What concurrent readers see of a batch: rule W4.

extension CheckDefinition {
  @CheckList static var atomicityChecks: [CheckDefinition] {
    Check(
      .w4, "batches.appear-at-once", "a reader of many keys never sees a part of a batch",
      needs: .atomicBatches
    ) { context in
      try await checkAtomicity(context, with: .readMany)
    }
    Check(
      .w4, "batches.appear-in-order",
      "a task that has read one key of a batch sees the whole batch in all later reads of single keys",
      needs: .atomicBatches
    ) { context in
      try await checkAtomicity(context, with: .read)
    }
    Check(
      .w4, "batches.replace-at-once",
      "a reader never sees a state between the removals and the writes of one apply(_:)",
      needs: .atomicBatches
    ) { context in
      try await checkReplacement(context)
    }
    Check(
      .w4, "batches.disappear-at-once", "a reader of many keys never sees a batch of removals half done",
      needs: .atomicBatches
    ) { context in
      try await checkRemovals(context)
    }
    Check(
      .w4, "batches.beside-one-another",
      "of two changes of the same keys at the same time, one takes effect after the other, both as a whole",
      needs: .atomicBatches
    ) { try await checkPairs($0) }
    Check(
      .w4, "batches.of-any-size",
      "a reader never sees a part of a batch of 100,000 entries (fewer on a slow engine)",
      needs: .atomicBatches
    ) { context in
      let engine = try await context.open()
      let count = try await context.largeCount(
        for: engine,
        in: context.byLevel(quick: .milliseconds(250), standard: .seconds(2), exhaustive: .seconds(2)),
        atLeast: context.byLevel(quick: 1_500, standard: 10_000, exhaustive: 10_000))
      let keys = keys(count)
      let samples = stride(from: 0, to: keys.count, by: 9_999).map { keys[$0] } + [keys[keys.count - 1]]
      try await whileRunning {
        try await engine.write(keys.map { (key: $0, data: data("v")) })
      } readers: { _ in
        let count = try await engine.read(keys: samples).count
        try expect(
          count == 0 || count == samples.count,
          "while a batch of \(keys.count) entries was written, one read(keys:) found \(count) of \(samples.count) of them"
        )
      }
      try expect(try await engine.keyCount(), is: keys.count, "keyCount() after a batch")
    }
  }
}

/// Changes the same keys by two methods at the same time, of every pair of methods, when some of the keys are there. An engine may look
/// for the keys first.
private func checkPairs(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(4)
  let methods = ChangeMethod.all(context.capabilities).filter { !$0.isOfOneKey }
  let rounds = context.rounds(quick: 4, standard: 12, exhaustive: 400, of: "rounds of all pairs of changes")
  for round in rounds {
    for first in methods {
      context.noteProgress()
      for second in methods {
        let isThere = keys.enumerated().filter { ($0.offset + round).isMultiple(of: 2) }.map(\.element)
        try await engine.apply(
          keys.map { .remove(key: $0) } + isThere.map { .write(data("before"), key: $0) })
        try await gather(0..<2) { task in
          for _ in 0..<(task == 0 ? 0 : round % 6) { await Task.yield() }
          let method = task == 0 ? first : second
          try await method.performAmongMany(keys.map { ($0, data("\(task)")) }, in: engine)
        }
        let found = try await engine.readDataAndKeys(keys: keys)
        let values = Set(found.map(\.data))
        let isWhole =
          found.isEmpty ? first.removes || second.removes : found.count == keys.count && values.count == 1
        try expect(
          isWhole && !values.contains(data("before")),
          "after \(first.call) and \(second.call) of \(keys.count) keys at the same time, \(found.count) were there, with "
            + "\(values.map { describe($0) }.sorted())")
      }
    }
  }
}

/// Every batch, or transaction, writes the same version to all keys. Readers read them while the batches are written,
/// all at once or one by one.
private func checkAtomicity(_ context: CheckContext, with method: ReadMethod) async throws {
  let engine = try await context.open()
  let rounds = context.byLevel(quick: 40, standard: 200, exhaustive: 2_000)
  let keys = keysOfDifferentForms
  let wayCount = context.capabilities.contains(.transactions) ? 4 : 3
  try await engine.write(batch(of: keys, version: 0))
  try await whileRunning {
    let start = ContinuousClock.now
    for version in 1...rounds {
      if version > 20, ContinuousClock.now - start > enough { break }
      switch version % wayCount {
      case 0: try await engine.write(batch(of: keys, version: version))
      case 1: try await engine.apply(keys.map { .write(data("\(version)"), key: $0) })
      case 3:
        try await engine.withTransaction { transaction in
          for key in keys { try transaction.write(data("\(version)"), key: key) }
        }
      default:
        let now = Date()
        try await engine.writeEntries(
          keys.map { StorageEntry(key: $0, data: data("\(version)"), createdAt: now, updatedAt: now) })
      }
      await Task.yield()
    }
  } readers: { reader in
    if method == .readMany {
      let versions = try await engine.read(keys: keys).map(version)
      try expect(versions.count, is: keys.count, "the number of values of a read(keys:) during a batch")
      try expect(
        Set(versions).count == 1,
        "one read(keys:) during a batch returned the mixed versions \(describe(versions))")
    } else {
      // Forwards and backwards, because an engine may process a batch in either order.
      var last = 0
      for key in reader.isMultiple(of: 2) ? keys : keys.reversed() {
        let version = try await engine.read(key: key).map(version) ?? -1
        try expect(
          version >= last,
          "after version \(last) of one key had been read, read(key:) of \(key) in the same batch still "
            + "returned version \(version)")
        last = version
      }
    }
  }
}

/// An engine may have several parts, and determine that of an entry from the beginning, the first byte or the length of its key, or from
/// what is in braces in it.
private let keysOfDifferentForms =
  keys(8)
  + ["{a}/1", "2{b}", "users:3", "x/y/4", ".5", "Ä", "7", String(repeating: "8", count: 300)].map(key)

/// How long a slow engine is watched while it writes batch after batch.
private let enough = Duration.seconds(2)

private func batch(of keys: [CacheKey], version: Int) -> [(key: CacheKey, data: Data)] {
  keys.map { ($0, data("\(version)")) }
}

private func version(_ value: Data) -> Int {
  Int(String(decoding: value, as: UTF8.self)) ?? -1
}

/// Every batch removes one key and writes the next, so that exactly one is there at any time.
private func checkReplacement(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let rounds = context.byLevel(quick: 40, standard: 200, exhaustive: 2_000)
  let keys = keys(4)
  try await engine.write(data("v"), key: keys[0])
  try await whileRunning {
    let start = ContinuousClock.now
    for round in 0..<rounds {
      if round > 20, ContinuousClock.now - start > enough { break }
      let (old, new) = (keys[round % 4], keys[(round + 1) % 4])
      try await engine.apply([.remove(key: old), .write(data("v"), key: new)])
      await Task.yield()
    }
  } readers: { _ in
    let found = try await engine.readDataAndKeys(keys: keys)
    try expect(
      found.count, is: 1,
      "the number of keys that readDataAndKeys(keys:) found while batches replaced one key by another")
  }
}

/// Batches write all keys and remove all keys, so that all are there or none.
private func checkRemovals(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let rounds = context.byLevel(quick: 24, standard: 120, exhaustive: 1_200)
  let keys = keysOfDifferentForms
  try await whileRunning {
    let start = ContinuousClock.now
    for round in 0..<rounds {
      if round > 20, ContinuousClock.now - start > enough { break }
      try await engine.write(entries(keys))
      await Task.yield()
      switch round % 3 {
      case 0: try await engine.remove(keys: keys)
      case 1: try await engine.apply(keys.map { .remove(key: $0) })
      default: try await engine.apply([.removeAll])
      }
      await Task.yield()
    }
  } readers: { _ in
    let count = try await engine.read(keys: keys).count
    try expect(
      count == 0 || count == keys.count,
      "while batches wrote and removed \(keys.count) keys, one read(keys:) found \(count) of them")
  }
}
