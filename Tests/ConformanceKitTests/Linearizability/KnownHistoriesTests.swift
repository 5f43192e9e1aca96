import Testing

@testable import ConformanceKit

private let (a, b, c) = (0, 1, 2)

@Suite("Histories known to be legal or illegal")
struct KnownHistoriesTests {
  @Test("An empty history and a sequential history are legal")
  func sequential() {
    #expect(LinearizabilityChecker.strict().isLegal([]))
    #expect(
      LinearizabilityChecker.strict().isLegal([
        .read(a, nil, by: 1, 1, 2), .write(a, 1, by: 2, 3, 4), .read(a, 1, by: 1, 5, 6),
        .remove(a, by: 1, 7, 8),
        .exists(a, false, by: 2, 9, 10),
      ]))
  }

  @Test("A read that overlaps a write may see it or not")
  func overlappingRead() {
    for seen in [nil, 1] {
      #expect(
        LinearizabilityChecker.strict().isLegal([.write(a, 1, by: 1, 1, 4), .read(a, seen, by: 2, 2, 3)]))
    }
  }

  @Test("A read that has seen a write in progress binds the reads after it")
  func newOldInversion() {
    let writing = HistoryCall.write(a, 1, by: 1, 1, 10)
    let new = HistoryCall.read(a, 1, by: 2, 2, 3)
    #expect(LinearizabilityChecker.strict().isLegal([writing, new, .read(a, 1, by: 3, 4, 5)]))
    #expect(LinearizabilityChecker.strict().isIllegal([writing, new, .read(a, nil, by: 3, 4, 5)]))
    // If the two reads had overlapped, either could have come first.
    #expect(
      LinearizabilityChecker.strict().isLegal([writing, .read(a, 1, by: 2, 2, 5), .read(a, nil, by: 3, 4, 6)])
    )
  }

  @Test("A transaction that has only seen that a key exists may overwrite an unread value")
  func overwrittenUnseen() {
    let looking = HistoryCall(
      task: 3, method: .transaction, changes: [.write(key: a, value: 7)], keys: [a], answer: .exist([a]),
      begin: 5, end: 10)
    let history: [HistoryCall] = [
      .write(a, 1, by: 1, 1, 2), .read(a, 1, by: 1, 3, 12), .write(a, 5, by: 2, 4, 14), looking,
      .read(a, 7, by: 1, 16, 17),
    ]
    #expect(LinearizabilityChecker.strict().isLegal(history))
    let absent = HistoryCall(
      task: 3, method: .transaction, changes: [.write(key: a, value: 7)], keys: [a], answer: .exist([]),
      begin: 5, end: 10)
    #expect(LinearizabilityChecker.strict().isIllegal(history.map { $0.task == 3 ? absent : $0 }))
  }

  @Test("A stale read after an acknowledged write is illegal")
  func staleRead() {
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        .write(a, 1, by: 1, 1, 2), .write(a, 2, by: 2, 3, 4), .read(a, 1, by: 3, 5, 6),
      ]))
  }

  @Test("Of two concurrent writes either may be the last, but the same for all readers")
  func overlappingWrites() {
    let writes: [HistoryCall] = [.write(a, 1, by: 1, 1, 4), .write(a, 2, by: 2, 2, 3)]
    for last in [1, 2] {
      #expect(
        LinearizabilityChecker.strict().isLegal(
          writes + [.read(a, last, by: 3, 5, 6), .read(a, last, by: 4, 7, 8)]))
    }
    #expect(
      LinearizabilityChecker.strict().isIllegal(
        writes + [.read(a, 1, by: 3, 5, 6), .read(a, 2, by: 4, 7, 8)]))
    #expect(LinearizabilityChecker.strict().isIllegal(writes + [.read(a, nil, by: 3, 5, 6)]))
  }

  @Test("Two readers that see two writes in different orders are illegal")
  func readersDisagree() {
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        .write(a, 1, by: 1, 1, 20), .write(a, 2, by: 2, 2, 19),
        .read(a, 1, by: 3, 3, 4), .read(a, 2, by: 3, 7, 8),
        .read(a, 2, by: 4, 5, 6), .read(a, 1, by: 4, 9, 10),
      ]))
  }

  @Test("A lost update is illegal")
  func lostUpdate() {
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        .write(a, 1, by: 1, 1, 4), .write(b, 2, by: 2, 2, 3), .read(a, 1, by: 3, 5, 6),
        .read(b, nil, by: 3, 7, 8),
      ]))
  }

  @Test("If each key on its own is legal, a history of reads of different keys is legal")
  func locality() {
    #expect(
      LinearizabilityChecker.strict().isLegal([
        .write(a, 1, by: 1, 1, 10), .write(b, 1, by: 2, 2, 9),
        .read(a, 1, by: 3, 3, 4), .read(b, nil, by: 3, 5, 6),
        .read(b, 1, by: 4, 11, 12), .read(a, 1, by: 4, 13, 14),
      ]))
  }

  @Test("A partly visible batch is illegal unless batches may be partly visible")
  func halfBatch() {
    let batch = HistoryCall.change(
      .writeMany, [.write(key: a, value: 1), .write(key: b, value: 1)], by: 1, 1, 10)
    let half = [batch, .read(a, 1, by: 2, 2, 3), .read(b, nil, by: 2, 4, 5)]
    #expect(LinearizabilityChecker.strict().isIllegal(half))
    #expect(LinearizabilityChecker.strict { $0.batchesAreAtomic = false }.isLegal(half))
    let late = half + [.read(b, nil, by: 3, 11, 12)]
    #expect(LinearizabilityChecker.strict { $0.batchesAreAtomic = false }.isIllegal(late))
  }

  @Test("A read of many keys that mixes two states is illegal unless such reads need not be atomic")
  func tornRead() {
    let history: [HistoryCall] = [
      .write(a, 1, by: 1, 2, 3), .write(b, 1, by: 1, 4, 5),
      .look(.readAll, [a, b, c], .found([b: 1]), by: 2, 1, 6),
    ]
    #expect(LinearizabilityChecker.strict().isIllegal(history))
    #expect(LinearizabilityChecker.strict { $0.readsAreAtomic = false }.isLegal(history))
    let late: [HistoryCall] = [
      .write(a, 1, by: 1, 1, 2), .look(.readAll, [a, b, c], .found([:]), by: 2, 3, 4),
    ]
    #expect(LinearizabilityChecker.strict { $0.readsAreAtomic = false }.isIllegal(late))
  }

  @Test("A count must have been right at some moment of the call")
  func count() {
    let history: [HistoryCall] = [
      .write(a, 1, by: 1, 1, 4), .write(b, 1, by: 2, 2, 5), .remove(a, by: 1, 6, 9),
    ]
    for (count, begin, end) in [(0, 0, 3), (2, 3, 10), (1, 7, 8), (2, 7, 8)] {
      #expect(
        LinearizabilityChecker.strict().isLegal(
          history + [.look(.keyCount, [], .count(count), by: 3, begin, end)]))
    }
    for (count, begin, end) in [(3, 0, 20), (2, 10, 11)] {
      #expect(
        LinearizabilityChecker.strict().isIllegal(
          history + [.look(.keyCount, [], .count(count), by: 3, begin, end)]))
    }
  }

  @Test("A call that threw may have happened, may happen later, or not at all")
  func unclear() {
    let failed = HistoryCall.change(.write, [.write(key: a, value: 1)], by: 1, 1, 2, threw: .unclear)
    #expect(LinearizabilityChecker.strict().isLegal([failed, .read(a, nil, by: 2, 3, 4)]))
    #expect(
      LinearizabilityChecker.strict().isLegal([failed, .read(a, nil, by: 2, 3, 4), .read(a, 1, by: 2, 5, 6)]))
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        failed, .read(a, 1, by: 2, 3, 4), .read(a, nil, by: 2, 5, 6),
      ]))
    #expect(LinearizabilityChecker.strict().isIllegal([.read(a, 1, by: 2, -2, -1), failed]))
  }

  @Test("A call that was cancelled or rejected has not happened")
  func cancelled() {
    for failure in [HistoryCall.Failure.cancelled, .refused] {
      let failed = HistoryCall.change(.write, [.write(key: a, value: 1)], by: 1, 1, 4, threw: failure)
      #expect(LinearizabilityChecker.strict().isLegal([failed, .read(a, nil, by: 2, 5, 6)]))
      #expect(LinearizabilityChecker.strict().isIllegal([failed, .read(a, 1, by: 2, 2, 3)]))
    }
  }

  @Test("An unseen write still makes its key exist")
  func unseenWrites() {
    let writes: [HistoryCall] = [.write(a, 1, by: 1, 1, 4), .write(a, 2, by: 2, 2, 10)]
    #expect(LinearizabilityChecker.strict().isLegal(writes + [.exists(a, true, by: 3, 5, 6)]))
    #expect(LinearizabilityChecker.strict().isIllegal(writes + [.exists(a, false, by: 3, 5, 6)]))
    let removed: [HistoryCall] = writes + [.remove(a, by: 1, 5, 6)]
    for isThere in [true, false] {
      #expect(LinearizabilityChecker.strict().isLegal(removed + [.exists(a, isThere, by: 3, 11, 12)]))
    }
    #expect(
      LinearizabilityChecker.strict().isIllegal(
        removed + [
          .exists(a, false, by: 3, 7, 8), .exists(a, true, by: 3, 9, 10), .exists(a, false, by: 3, 11, 12),
        ]))
  }

  @Test("A transaction reads and writes at one moment")
  func transactions() {
    let first = HistoryCall.transaction([a: nil], [.write(key: a, value: 1)], by: 1, 1, 4)
    // A lost update is illegal even if no later call reads it.
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        first, .transaction([a: nil], [.write(key: a, value: 2)], by: 2, 2, 5),
      ]))
    for end in [4, 9] {
      #expect(
        LinearizabilityChecker.strict().isLegal([
          .transaction([a: nil], [.write(key: a, value: 1)], by: 1, 1, end),
          .transaction([a: 1], [.write(key: a, value: 2)], by: 2, 2, 5), .read(a, 2, by: 3, 6, 7),
        ]))
    }
    #expect(
      LinearizabilityChecker.strict { $0.transactionsAreAtomic = false }.isLegal([
        first, .transaction([a: nil], [.write(key: a, value: 2)], by: 2, 2, 5),
      ]))
    // A single call between the read and the write.
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        .transaction([a: nil], [.write(key: a, value: 1)], by: 1, 1, 10), .write(a, 2, by: 2, 2, 3),
        .read(a, 2, by: 2, 4, 5), .read(a, 1, by: 2, 11, 12),
      ]))
  }

  @Test("Write skew is illegal, and so is a transaction that is seen in part")
  func writeSkew() {
    let skew = [
      HistoryCall.transaction([a: nil, b: nil], [.write(key: a, value: 1)], by: 1, 1, 4),
      .transaction([a: nil, b: nil], [.write(key: b, value: 2)], by: 2, 2, 5),
    ]
    #expect(LinearizabilityChecker.strict().isIllegal(skew))
    #expect(LinearizabilityChecker.strict().isLegal([skew[0]]))
    let both = HistoryCall.transaction(
      [:], [.write(key: a, value: 1), .write(key: b, value: 1)], by: 1, 1, 10)
    #expect(
      LinearizabilityChecker.strict().isIllegal([both, .read(a, 1, by: 2, 2, 3), .read(b, nil, by: 2, 4, 5)]))
    #expect(
      LinearizabilityChecker.strict().isLegal([both, .read(a, nil, by: 2, 2, 3), .read(b, 1, by: 2, 4, 5)]))
  }

  @Test("An unseen write does not explain a transaction that has read the state before it")
  func blindWrites() {
    let transaction = HistoryCall.transaction([a: 1], [.write(key: a, value: 3)], by: 2, 5, 8)
    let start = HistoryCall.write(a, 1, by: 1, 1, 2)
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        start, .write(a, 2, by: 3, 3, 4), transaction, .read(a, 3, by: 1, 9, 10),
      ]))
    for seen in [2, 3] {
      #expect(
        LinearizabilityChecker.strict().isLegal([
          start, .write(a, 2, by: 3, 3, 12), transaction, .read(a, seen, by: 1, 9, 10),
        ]) == true)
    }
  }

  @Test("A transaction whose body threw has read at one moment, and changed nothing")
  func rolledBack() {
    let thrown = HistoryCall.transaction(
      [a: nil, b: nil], [.write(key: a, value: 7)], by: 1, 1, 4, isRolledBack: true)
    #expect(LinearizabilityChecker.strict().isLegal([thrown, .read(a, nil, by: 2, 5, 6)]))
    #expect(LinearizabilityChecker.strict().isIllegal([thrown, .read(a, 7, by: 2, 2, 3)]))
    let mixed = HistoryCall.transaction([a: nil, b: 1], [], by: 1, 1, 10, isRolledBack: true)
    #expect(
      LinearizabilityChecker.strict().isIllegal([
        mixed, .write(a, 1, by: 2, 2, 3), .write(b, 1, by: 2, 4, 5),
      ]))
    #expect("\(thrown)" == #"withTransaction("a" → nil, "b" → nil, "a": 7) threw"#)
  }

  @Test("Reads before the first write return the initial values")
  func initialState() {
    let checker = LinearizabilityChecker(model: AtomicityModel(keyCount: 3), initial: [7, 0, 0])
    #expect(checker.isLegal([.read(a, 7, by: 1, 1, 2), .write(a, 8, by: 2, 3, 6), .read(a, 7, by: 1, 4, 5)]))
    #expect(checker.isIllegal([.read(a, nil, by: 1, 1, 2)]))
  }
}
