import StockroomCore
import StockroomKitSupport

/// The calls of one task in a history.
struct HistoryPlayer {
  private(set) var recorder: HistoryRecorder
  private let workload: HistoryWorkload
  private let engine: EngineUnderTest
  private let entries: HistoryEntries
  private var random: SeededRandom
  private var nextValue: Int

  init(
    _ workload: HistoryWorkload, task: Int, round: Int, share: Int, seed: UInt64, _ clock: any HistoryClock,
    _ engine: EngineUnderTest, _ entries: HistoryEntries
  ) {
    recorder = HistoryRecorder(task: task, clock: clock)
    (self.workload, self.engine, self.entries) = (workload, engine, entries)
    random = SeededRandom(seed: seed &+ UInt64(round) &* 1_000_003 &+ UInt64(task) &* 7_919)
    // At most four values for each call. Tasks use different values.
    nextValue = HistoryEntries.firstUnique + (round * share * 4) * workload.tasks + task
  }

  mutating func makeOneCall() async {
    // Yields at random, because with an engine that never suspends few tasks would run concurrently.
    if random.next(upTo: 4) == 0 { await Task.yield() }
    let methods =
      recorder.task <= workload.writers ? workload.methods : workload.methods.filter { $0.method.isRead }
    var choice = random.next(upTo: methods.reduce(0) { $0 + $1.weight })
    for (method, weight) in methods {
      if choice < weight { return await make(method) }
      choice -= weight
    }
  }

  private mutating func make(_ method: HistoryCall.Method) async {
    switch method {
    case .write, .writeMany, .writeEntries, .remove, .removeMany, .removeAll, .apply: await change(method)
    case .transaction: await transact()
    case .read, .exists, .readMany, .readManyWithKeys, .readEntries, .keysExist: await observeSome(method)
    case .readAll, .readAllData, .readAllEntries, .allKeys, .keyCount, .scan: await observeAll(method)
    }
  }

  private mutating func change(_ method: HistoryCall.Method) async {
    let (engine, entries) = (engine, entries)
    let cells = someKeys(method == .write || method == .remove ? 1...1 : 2...3).map {
      Cell(key: $0, value: newValue())
    }
    let pairs = cells.map { (key: entries.keys[$0.key], data: entries.data(of: $0)) }
    let writes = cells.map { HistoryCall.Change.write(key: $0.key, value: $0.value) }
    let removals = cells.map { HistoryCall.Change.remove(key: $0.key) }
    switch method {
    case .write:
      let (key, data) = pairs[0]
      await change(method, writes) { try await engine.write(data, key: key) }
    case .writeMany: await change(method, writes) { try await engine.write(pairs) }
    case .writeEntries: await change(method, writes) { try await wayOfImporting.write(engine, pairs) }
    case .remove:
      let key = pairs[0].key
      await change(method, removals) { try await engine.remove(key: key) }
    case .removeMany:
      let keys = pairs.map(\.key)
      await change(method, removals) { try await engine.remove(keys: keys) }
    case .apply:
      // Every third batch removes one entry and writes others.
      let isExchange = random.next(upTo: 3) == 0
      let changes = isExchange ? [removals[0]] + writes.dropFirst() : writes
      let operations = pairs.enumerated().map { index, pair in
        isExchange && index == 0 ? StorageOperation.remove(key: pair.key) : .write(pair.data, key: pair.key)
      }
      await change(method, changes) { try await engine.apply(operations) }
    default: await change(.removeAll, [.removeAll]) { try await engine.removeAllData() }
    }
  }

  private mutating func observeSome(_ method: HistoryCall.Method) async {
    let (engine, entries) = (engine, entries)
    let asked = someKeys(method == .read || method == .exists ? 1...1 : 2...4)
    let keys = asked.map { entries.keys[$0] }
    switch method {
    case .exists:
      await look(method, at: asked) {
        try await engine.keyExists(keys[0])
      } answer: {
        .exist($0 ? Set(asked) : [])
      }
    case .readMany:
      await look(method, at: asked) {
        try await engine.read(keys: keys)
      } answer: {
        entries.answer($0, of: asked)
      }
    case .readManyWithKeys:
      await look(method, at: asked) {
        try await engine.readDataAndKeys(keys: keys)
      } answer: {
        entries.answer($0, of: asked)
      }
    case .readEntries:
      await look(method, at: asked) {
        try await engine.readEntries(keys: keys)
      } answer: {
        entries.answer($0.map { ($0.key, $0.data) }, of: asked)
      }
    case .keysExist:
      await look(method, at: asked) {
        try await engine.keysExist(keys)
      } answer: {
        entries.answer(keys: $0, of: asked)
      }
    default:
      await look(.read, at: asked) {
        try await engine.read(key: keys[0])
      } answer: {
        entries.answer($0.map { [(keys[0], $0)] } ?? [], of: asked)
      }
    }
  }

  private mutating func observeAll(_ method: HistoryCall.Method) async {
    let (engine, entries) = (engine, entries)
    let all = Array(0..<workload.keyCount)
    switch method {
    case .readAllData:
      await look(method, at: all) {
        try await engine.readAllData()
      } answer: {
        entries.answer($0, of: all)
      }
    case .readAllEntries:
      await look(method, at: all) {
        try await engine.readAllEntries()
      } answer: {
        entries.answer($0.map { ($0.key, $0.data) }, of: all)
      }
    case .allKeys:
      await look(method, at: all) {
        try await engine.allKeys()
      } answer: {
        entries.answer(keys: $0, of: all)
      }
    case .keyCount:
      await look(method, at: all) {
        try await engine.keyCount()
      } answer: {
        .count($0)
      }
    case .scan: await scan()
    default:
      await look(.readAll, at: all) {
        try await engine.readAllDataAndKeys()
      } answer: {
        entries.answer($0, of: all)
      }
    }
  }

  /// Scans the keys after one of them, up to the end or to a limit.
  private mutating func scan() async {
    let (engine, entries) = (engine, entries)
    let first = random.next(upTo: workload.keyCount)
    let limit = random.next(upTo: 2) == 0 ? nil : random.next(upTo: workload.keyCount) + 1
    let range = KeyRange(after: first == 0 ? nil : entries.keys[first - 1], upTo: nil)
    let keys = Array(first..<workload.keyCount)
    await recorder.look(.scan) { found in
      // If the limit was reached, the keys after the last one have not been read.
      guard let limit, let found, found.count == limit,
        let last = found.last.flatMap({ entries.number(of: $0.key) })
      else { return keys }
      return keys.filter { $0 <= last }
    } _: {
      try await engine.scan(range, limit: limit)
    } answer: {
      entries.answer($0, of: keys)
    }
  }

  /// Reads some keys and changes some. The two sets may have one or two keys in common.
  private mutating func transact() async {
    let engine = engine
    let asked = someKeys(1...3)
    var changed = someKeys(1...2)
    // It usually overwrites a key that it has read.
    if random.next(upTo: 3) > 0 { changed = [asked[0]] + changed.filter { $0 != asked[0] } }
    let isReadOnly = random.next(upTo: 5) == 0
    let body = HistoryBody(
      entries: entries, asked: asked,
      operations: isReadOnly
        ? []
        : changed.map { key in
          random.next(upTo: 5) == 0 ? .remove(key: key) : .write(key: key, value: newValue())
        },
      look: random.pick([.scan: 3, .readMany: 2, .keyExists: 2, .read: 5], otherwise: .read),
      throwsAtEnd: random.next(upTo: 6) == 0)
    let delay = cancellation()
    await recorder.transact(reading: body.keys, body.operations) {
      try await perform({ try await engine.withTransaction { try body.run($0) } }, cancelledAfter: delay)
    }
  }

  // MARK: Calls that may be cancelled

  private mutating func change(
    _ method: HistoryCall.Method, _ changes: [HistoryCall.Change],
    _ call: @escaping @Sendable () async throws -> Void
  ) async {
    let delay = cancellation()
    await recorder.change(method, changes) { try await perform(call, cancelledAfter: delay) }
  }

  private mutating func look<Answer: Sendable>(
    _ method: HistoryCall.Method, at keys: [Int], _ call: @escaping @Sendable () async throws -> Answer,
    answer: (Answer) -> HistoryCall.Answer
  ) async {
    let delay = cancellation()
    await recorder.look(method, at: keys, { try await perform(call, cancelledAfter: delay) }, answer: answer)
  }

  /// How often to yield to other tasks before the call is cancelled; nil if it is not cancelled.
  private mutating func cancellation() -> Int? {
    workload.cancels && random.next(upTo: 2) == 0 ? random.next(upTo: 6) : nil
  }

  // MARK: Choices

  private mutating func newValue() -> Int {
    if workload.usesFewValues { return 1 + random.next(upTo: HistoryEntries.firstUnique - 1) }
    defer { nextValue += workload.tasks }
    return nextValue
  }

  /// Different keys in no particular order.
  private mutating func someKeys(_ count: ClosedRange<Int>) -> [Int] {
    var keys = Array(0..<workload.keyCount)
    let wanted = count.lowerBound + random.next(upTo: count.count)
    for index in 0..<wanted { keys.swapAt(index, index + random.next(upTo: keys.count - index)) }
    return Array(keys.prefix(wanted))
  }
}
