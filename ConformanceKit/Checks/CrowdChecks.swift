#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// More tasks than any pool has connections: rules C1 and O3. Cancelled tasks, and tasks that read the same keys, are in
// separate files.

extension CheckDefinition {
  @CheckList static var crowdChecks: [CheckDefinition] {
    Check(
      .c1, "crowd.of-300-tasks",
      "300 concurrent tasks that write and read their own keys and a shared one all finish, and each reads "
        + "its own writes"
    ) { context in
      try await useByMany(context, try await context.open())
    }
    Check(
      .c1, "crowd.of-one-method", "150 concurrent tasks that call the same method all finish"
    ) { context in
      let engine = try await context.open()
      for method in ChangeMethod.all(context.capabilities) { try await changeByMany(method, context, engine) }
      let hot = key("hot")
      try await engine.write(data("hot"), key: hot)
      for method in ReadMethod.allCases {
        try await gather(0..<150) { task in
          // Some read other keys, with a different result.
          if task % 3 == 1, method.isOfOneKey || method.isOfManyKeys {
            let found = try await method.found(of: [key("absent \(task)")], in: engine)
            try expect(
              found.isEmpty, "\(method.call) of an absent key in one of 150 tasks returned \(describe(found))"
            )
          } else {
            let isFound = try await method.finds(data("hot"), under: hot, in: engine)
            try expect(isFound, "\(method.call) in one of 150 tasks did not return the only entry")
          }
          context.noteProgress()
        }
      }
    }
    Check(
      .c1, "crowd.of-large-values", "24 concurrent tasks that each write 1 MiB all store it"
    ) { context in
      let engine = try await context.open()
      let keys = keys(24)
      try await gather(keys.indices) { task in
        try await engine.write(Data(repeating: UInt8(task), count: 1 << 20), key: keys[task])
      }
      for (task, key) in keys.enumerated() {
        context.noteProgress()
        try expect(
          try await engine.read(key: key) == Data(repeating: UInt8(task), count: 1 << 20),
          "read(key:) did not return the value of 1 MiB that one of 24 tasks had written")
      }
    }
    Check(
      .c1, "crowd.of-one-key",
      "after 120 tasks have written and removed one key and removed everything, all methods agree, and "
        + "createdAt is not earlier than the removals"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 3, standard: 20, exhaustive: 500, of: "rounds of 120 calls")
      for round in rounds { try await crowdOneKey(engine, round) }
    }
    Check(
      .c1, "crowd.reads-own-writes",
      "a task always sees its own writes and removals, by every kind of change, while others do the same "
        + "with other keys"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 1_500, standard: 15_000, exhaustive: 300_000, of: "writes")
      try await writeAndReadBack(engine, rounds)
    }
    Check(
      .c1, "crowd.one-bad-among-many",
      "of a hundred simultaneous calls, the invalid one throws, and the others do their work and return"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 3, standard: 15, exhaustive: 300, of: "rounds of 100 calls")
      for round in rounds {
        try await oneBadAmongMany(engine, round)
        context.noteProgress()
        try await oneBadReadAmongMany(engine, round)
        try await oneBadRemovalAmongMany(engine, round)
        context.noteProgress()
        try await oneBadBatchAmongMany(engine, round)
      }
    }
    Check(
      .o3, "crowd.when-it-is-closed",
      "each of a hundred calls in progress at close() returns the right result, or throws closed and has "
        + "done nothing; none hangs"
    ) { context in
      let rounds = context.rounds(quick: 3, standard: 15, exhaustive: 300, of: "rounds of 100 calls")
      let threads = CheckExecutor()
      defer { threads.stop() }
      for round in rounds { try await closeAmongMany(context, round, on: threads) }
    }
  }
}

/// Has 300 tasks write in every way, and read single keys and pages.
func useByMany(_ context: CheckContext, _ engine: EngineUnderTest) async throws {
  let hot = key("hot")
  let hasTransactions = context.capabilities.contains(.transactions)
  try await engine.write(data("hot"), key: hot)
  try await gather(0..<300) { task in
    let own = key("crowd-\(task)")
    switch task % 3 {
    case 0: try await engine.write([(own, value(for: own)), (key("pair-\(task)"), data("pair"))])
    case 1 where hasTransactions:
      try await ChangeMethod.transaction.performAmongMany([(own, value(for: own))], in: engine)
    default: try await engine.write(value(for: own), key: own)
    }
    try expect(
      try await engine.read(key: own), is: value(for: own),
      "read(key:) in one of 300 tasks of what it had written")
    try expect(try await engine.read(key: hot), is: data("hot"), "read(key:) of one key in 300 tasks")
    let page = try await engine.scan(.all, limit: 5)
    try expect((2...5).contains(page.count), "a scan of 5 entries in 300 tasks returned \(page.count)")
    context.noteProgress()
  }
}

/// Has 150 tasks each store an entry by one method, or remove it. Leaves nothing.
private func changeByMany(
  _ method: ChangeMethod, _ context: CheckContext, _ engine: EngineUnderTest
) async throws {
  let all = entries(keys(150, prefix: "crowd-"))
  if method.removes { try await engine.write(all) }
  try await gather(all.indices) { task in
    try await method.performAmongMany([all[task]], in: engine)
    context.noteProgress()
  }
  let found = try await engine.readDataAndKeys(keys: all.map(\.key))
  try expect(found, are: method.removes ? [] : all, "the entries after 150 tasks had called \(method.call)")
  try await engine.removeAllData()
}

/// Has 120 tasks write and remove one key, and one of them remove everything.
private func crowdOneKey(_ engine: EngineUnderTest, _ round: Int) async throws {
  let hot = key("hot")
  try await engine.write(data("before"), key: hot)
  try await letClockAdvance()
  let start = Date()
  try await gather(0..<120) { task in
    // A different task in each round.
    if task == (60 + round * 37) % 120 { return try await engine.removeAllData() }
    switch (task + round) % 4 {
    case 0: try await engine.write(data("\(task)"), key: hot)
    case 1: try await engine.remove(key: hot)
    case 2:
      try await engine.apply([
        .write(data("\(task)"), key: hot), .write(data("\(task)"), key: key("beside \(task)")),
      ])
    default: try await engine.remove(keys: [hot, key("absent")])
    }
  }
  // The clock may have been set back.
  let earliest = min(start, Date()).addingTimeInterval(-ClockTolerance.seconds)
  let isThere = try await engine.read(key: hot) != nil
  let all = try await engine.allKeys()
  try expect(all.contains(hot), is: isThere, "whether allKeys() contains the key")
  try expect(try await engine.keyExists(hot), is: isThere, "keyExists(_:) of the key")
  try expect(try await engine.keyCount(), is: all.count, "keyCount(), with \(all.count) keys in allKeys(),")
  try expect(
    try await engine.readAllEntries().contains { $0.key == hot }, is: isThere,
    "whether readAllEntries() contains the key")
  let (created, updated) = (try await engine.createdAt(key: hot), try await engine.updatedAt(key: hot))
  try expect(created != nil, is: isThere, "whether createdAt(key:) is not nil")
  if let created, let updated {
    try expect(
      created <= updated,
      "createdAt of the key was \(describe(created)), after updatedAt, \(describe(updated))")
    // The entry was removed, and each removal was acknowledged.
    if created < earliest {
      throw Violation(
        "createdAt of the key was \(describe(created)), although it was removed after \(describe(start))",
        rule: .w2)
    }
  }
  try await expectAllWaysAgree(in: engine)
  try await writeFirstByMany(hot, engine)
}

/// Has 24 tasks write an absent key and then each read its createdAt. The first write creates the entry, and the others
/// keep its createdAt.
private func writeFirstByMany(_ key: CacheKey, _ engine: EngineUnderTest) async throws {
  try await engine.remove(key: key)
  let dates = try await gather(0..<24) { task in
    if task.isMultiple(of: 2) {
      try await engine.write(data("\(task)"), key: key)
    } else {
      try await engine.write([(key, data("\(task)"))])
    }
    return try await engine.createdAt(key: key)
  }
  let last = try await engine.createdAt(key: key)
  for date in dates where date != last {
    throw Violation(
      "createdAt of a key was \(describe(date as Any)), and then \(describe(last as Any)), although it was never removed in "
        + "between",
      rule: .w2)
  }
}

/// Closes an engine that a hundred tasks use. In every other round, ten tasks use another engine on its place
/// meanwhile.
private func closeAmongMany(
  _ context: CheckContext, _ round: Int, on threads: CheckExecutor
) async throws {
  let place = context.root.appending(path: "round \(round)", directoryHint: .isDirectory)
  let engine = try await context.open(place)
  let old = entries(keys(30))
  try await engine.write(old)
  let (reads, changes) = (
    ReadMethod.allCases, ChangeMethod.all(context.capabilities).filter { $0 != .removeAll }
  )
  func change(of number: Int) -> (method: ChangeMethod, entries: [(key: CacheKey, data: Data)]) {
    let method = changes[(number / 2 + round) % changes.count]
    return (method, entries(keys(method.isOfOneKey ? 1 : 2, prefix: "late-\(number)-")))
  }
  let writers = (0..<100).filter { !$0.isMultiple(of: 2) }
  let removed = writers.map(change).filter(\.method.removes).flatMap(\.entries)
  try await engine.write(removed)
  // Opened before the hundred tasks start; otherwise they might finish before it is open.
  let other = try await round.isMultiple(of: 2) ? nil : context.openAnotherIfPossible(at: place)
  let beside = other == nil ? [] : entries(keys(10, prefix: "beside-"))
  let writes = beside.map { key, data in
    Task(executorPreference: threads) { @concurrent in
      guard let other else { return }
      // Several times, so that the writes have not finished before close().
      for _ in 0..<3 { try await other.write(data, key: key) }
    }
  }
  let tasks = (0..<100).map { number in
    Task(executorPreference: threads) { @concurrent () async throws -> Bool in
      let change = change(of: number)
      do {
        if !number.isMultiple(of: 2) {
          try await change.method.perform(change.entries, in: engine)
          return true
        }
        if number % 20 == 0 {
          try await engine.verify()
          return true
        }
        let read = reads[(number / 2 + round) % reads.count]
        let found = try await read.found(of: old.map(\.key), in: engine)
        let isWhole =
          switch read {
          case .readMany, .readDataAndKeys: found == old.map(\.data)
          case _ where read.givesValues: Set(found).isSuperset(of: old.map(\.data))
          default: found.count >= old.count
          }
        try expect(isWhole, "\(read.call) in progress at close() returned an incomplete result")
        return true
      } catch let failure as CallFailure {
        let code = (failure.error as? StorageError)?.code
        // The engine may abort a transaction when so many tasks write.
        guard
          code == .closed || code == .conflict && change.method == .transaction && !number.isMultiple(of: 2)
        else {
          throw Violation("a call in progress at close() failed: \(failure)")
        }
        return false
      }
    }
  }
  for _ in 0..<round * 3 % 11 { await Task.yield() }
  try await engine.close()
  var (stored, gone): ([(key: CacheKey, data: Data)], [CacheKey]) = (old, [])
  for write in writes {
    do {
      try await write.value
    } catch let failure as CallFailure {
      throw Violation(
        "a write of another engine on the place failed while this one was closed: \(failure)", rule: .c2)
    }
  }
  stored += beside
  if let other { try await context.close(other) }
  for (number, task) in tasks.enumerated() {
    let isDone = try await task.value
    guard writers.contains(number) else { continue }
    let (method, entries) = change(of: number)
    // A call that threw closed in the middle of a batch may have made part of it if batches are not atomic.
    guard isDone || method.isOfOneKey || context.capabilities.contains(.atomicBatches) else { continue }
    if method.removes == isDone { gone += entries.map(\.key) } else { stored += entries }
  }
  engine.release()
  guard context.capabilities.contains(.persistent) else { return }
  let reopened = try await context.open(place)
  try await expectStored(stored, absent: gone, in: reopened)
  try await context.close(reopened)
}
