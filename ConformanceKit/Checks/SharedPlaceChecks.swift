#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Stale caches of a shared place, and concurrent opening: rules C2 and C3.

extension CheckDefinition {
  @CheckList static var sharedPlaceChecks: [CheckDefinition] {
    Check(
      .c2, "sharing.every-answer",
      "of two or three engines on one place, none returns a stale result after a change by another",
      needs: .persistent
    ) { context in
      var engines = [try await context.open()]
      while engines.count < 3 {
        guard let another = try await context.openUnlessLocked(context.place) else { break }
        engines.append(another)
      }
      if engines.count == 1 { return }
      try await checkAnswers(context, of: .engines(engines))
      for engine in engines.reversed() { try await context.close(engine) }
    }
    Check(
      .c3, "processes.every-answer",
      "of two processes on one place, neither returns a stale result after a change by the other",
      needs: [.persistent, .multiProcess], needsWorker: true
    ) { context in
      let engine = try await context.open()
      try await context.withWorker { worker in
        try await worker.perform(CallEngine(.open, at: context.place))
        try await checkAnswers(context, of: .processes(engine, worker, context.place))
        try await worker.perform(CallEngine(.close, at: context.place))
      }
    }
    Check(
      .c2, "opening.races",
      "engines that are opened concurrently, on a new place or repeatedly after a process was killed, share "
        + "the place or throw locked, and no write is lost",
      needs: .persistent
    ) { try await OpeningRace.check($0, beside: []) }
    Check(
      .c3, "processes.opening-races",
      "processes that open a place concurrently, a new one or repeatedly after another was killed, share it "
        + "or throw locked, and no write is lost",
      needs: .persistent, needsWorker: true
    ) { context in
      try await context.withWorker { first in
        try await context.withWorker { try await OpeningRace.check(context, beside: [first, $0]) }
      }
    }
    Check(
      .c3, "processes.after-a-second-opening",
      "after another engine in the process was opened on the place and closed, the first engine still has "
        + "its lock",
      needs: .persistent, needsWorker: true
    ) { try await checkLockAfterSecondOpening($0) }
  }
}

// MARK: - Answers

/// Makes one change after the other, some in quick succession, so that several may get the same modification time from
/// the file system. Sizes and counts stay the same where possible.
private func checkAnswers(_ context: CheckContext, of sharers: Sharers) async throws {
  let rounds =
    switch context.budget.level {
    case .quick: 12
    case .standard: 36
    case .exhaustive: 600
    }
  // The methods that can make a kind of change alternate.
  let methods: [ChangeMethod?] =
    [nil, .apply, .writeEntries] + (context.capabilities.contains(.transactions) ? [.transaction] : [])
  var answers = ExpectedAnswers()
  answers.absent = ["not yet", "never"]
  func change(
    _ operations: [StorageOperation], bySecond: Bool, by method: ChangeMethod?, first: Int
  ) async throws {
    try await sharers.perform(operations, bySecond: bySecond, by: method)
    answers.apply(operations)
    try await expectAnswers(
      answers, in: sharers, first: first, changedBySecond: bySecond, method?.call ?? "a change",
      noting: context.progress)
  }
  for round in 0..<rounds {
    context.noteProgress()
    let bySecond = round / 2 % 2 == 0
    // In some rounds changes follow each other at once, in others their entries have different times.
    if round % 4 == 3 { try await letClockAdvance() }
    // Fills any caches.
    try await sharers.verify(answers, first: round, inSecond: true, noting: context.progress)
    try await sharers.verify(answers, first: round, inSecond: false, noting: context.progress)
    for (index, operations) in changes(round).enumerated() {
      let possible = methods.filter { $0 != .writeEntries || operations.allSatisfy { $0.written != nil } }
      let method = possible[(round / 7 + index) % possible.count]
      try await change(operations, bySecond: bySecond, by: method, first: round)
    }
  }
  for (number, method) in methods.enumerated() {
    let write = StorageOperation.write(data("by way \(number)"), key: key("steady"))
    try await change([write], bySecond: true, by: method, first: number)
    guard method != .writeEntries else { continue }
    try await change([.remove(key: key("steady"))], bySecond: true, by: method, first: number)
    try await change([write], bySecond: true, by: method, first: number)
    try await change([.removeAll], bySecond: true, by: method, first: number)
  }
  var count = 0
  for number in context.rounds(quick: 40, standard: 300, exhaustive: 3_000, of: "changes in a row") {
    let change = StorageOperation.write(noise(1_000, seed: UInt64(number + 1)), key: key("row \(number % 5)"))
    try await sharers.perform([change], bySecond: true, by: nil)
    answers.apply([change])
    count += 1
  }
  try await expectAnswers(
    answers, in: sharers, first: 0, changedBySecond: true, "\(count) changes in a row",
    noting: context.progress)
  try await checkAnswersOfOtherTimes(&answers, of: sharers, context)
  try await checkAnswersAfterLargeBatches(of: sharers, context)
  try await checkAnswersAtOnce(answers, of: sharers, context)
  try await checkAnswersAfterOverwrites(answers, of: sharers, context)
  try await checkChangesWithoutReads(of: sharers, context)
}

/// Has the second engine import entries whose times are a year back or a year ahead, and then write something. The
/// entry that changed last does not have the newest time. At the end it imports another value with the same times.
private func checkAnswersOfOtherTimes(
  _ answers: inout ExpectedAnswers, of sharers: Sharers, _ context: CheckContext
) async throws {
  let (imported, now) = (key("imported"), Date())
  for (number, seconds) in [-31_536_000.0, 31_536_000, -31_536_000, -31_536_000].enumerated() {
    context.noteProgress()
    let (time, value) = (now + seconds, data("import \(number)"))
    let entry = StorageEntry(key: imported, data: value, createdAt: time, updatedAt: time)
    try await sharers.importBySecond([entry])
    answers.apply([.write(value, key: imported)])
    try await expectAnswers(
      answers, in: sharers, first: 0, changedBySecond: true, "an import of \(describe(time))",
      noting: context.progress)
    let change = StorageOperation.write(data("behind \(number)"), key: key("steady"))
    try await sharers.perform([change], bySecond: true, by: nil)
    answers.apply([change])
    try await expectAnswers(
      answers, in: sharers, first: 0, changedBySecond: true, "a write behind an import of \(describe(time))",
      noting: context.progress)
  }
  try await sharers.perform([.remove(key: imported)], bySecond: true, by: nil)
  answers.apply([.remove(key: imported)])
}

/// Has the second engine write far more than is left in the end, so that it may replace an old file with a new one.
/// Then another engine opens and closes.
private func checkAnswersAfterOverwrites(
  _ answers: ExpectedAnswers, of sharers: Sharers, _ context: CheckContext
) async throws {
  var answers = answers
  let large = keys(2, prefix: "large-")
  let count = context.byLevel(quick: 40, standard: 48, exhaustive: 240)
  for number in 0..<count {
    context.noteProgress()
    let value = noise(512 << 10, seed: UInt64(number + 1))
    try await sharers.perform([.write(value, key: large[number % 2])], bySecond: true, by: nil)
  }
  let last = large.map { StorageOperation.remove(key: $0) } + [.write(data("last"), key: key("steady"))]
  try await sharers.perform(last, bySecond: true, by: nil)
  answers.apply(last)
  for isReopened in [false, true] {
    if isReopened { try await sharers.reopenSecond(context) }
    // The first engine changes something before it has read anything.
    for bySecond in [false, true] {
      let change = StorageOperation.write(
        data("\(isReopened), \(bySecond)"), key: key("by \(bySecond ? 2 : 1)"))
      try await sharers.perform([change], bySecond: bySecond, by: nil)
      answers.apply([change])
      try await expectAnswers(
        answers, in: sharers, first: 0, changedBySecond: bySecond,
        "\(count / 2) MiB of overwrites\(isReopened ? ", an opening" : "") and a change",
        noting: context.progress)
    }
  }
}

/// Has the second engine change and remove so many entries in one batch that others may not be notified of each. Leaves
/// none of these entries.
private func checkAnswersAfterLargeBatches(of sharers: Sharers, _ context: CheckContext) async throws {
  let wanted = context.byLevel(quick: 1_500, standard: 4_200, exhaustive: 20_000)
  let count = try await context.affordableCount(wanted, of: "entries that another one changes in one batch")
  let keys = keys(count, prefix: "batch-")
  // Keys spread over all entries, which are read one by one and therefore cached. If the engine is slow, only the keys
  // that were written first, of whose changes others may have been notified too long ago.
  let asked = stride(from: 0, to: count, by: max(1, count / 60)).map { keys[$0] }
  for version in 1...3 {
    context.noteProgress()
    let isRemoved = version == 3
    let batch: [StorageOperation] = keys.map {
      isRemoved ? .remove(key: $0) : .write(value(for: $0, version: version), key: $0)
    }
    try await sharers.perform(batch, bySecond: true, by: nil)
    let when = "after a \(isRemoved ? "removal" : "batch") of \(count) entries by another"
    let start = ContinuousClock.now
    for (number, key) in asked.enumerated() {
      if number > 2, ContinuousClock.now - start > .milliseconds(100) { break }
      try expect(
        try await sharers.first.read(key: key), is: isRemoved ? nil : value(for: key, version: version),
        "\(when), read(key:) of \(key)")
    }
    let found = try await sharers.first.readDataAndKeys(keys: asked)
    try expect(
      found, are: isRemoved ? [] : entries(asked, version: version), "readDataAndKeys(keys:) \(when)")
  }
}

/// Calls the same method right before and right after a change: some engines cache results for a few milliseconds only.
private func checkAnswersAtOnce(
  _ answers: ExpectedAnswers, of sharers: Sharers, _ context: CheckContext
) async throws {
  var answers = answers
  let brief = key("brief")
  answers.absent.insert(brief.value)
  let changes: [StorageOperation] = [
    .write(data("first"), key: brief), .write(data("other"), key: brief), .remove(key: brief),
  ]
  for method in ExpectedAnswers.methods(withTransactions: context.capabilities.contains(.transactions)) {
    for change in changes {
      context.noteProgress()
      try await answers.ask(method, sharers.first)
      try await sharers.perform([change], bySecond: true, by: nil)
      answers.apply([change])
      do {
        try await answers.ask(method, sharers.first)
      } catch let violation as Violation {
        throw Violation("right after a change by another, \(violation.description)")
      }
    }
  }
}

private func changes(_ round: Int) -> [[StorageOperation]] {
  let digits = String(1_000 + round)
  let steady = key("steady")
  return switch round % 7 {
  case 0:
    // Absent, present, overwritten with the same number of bytes.
    [[.write(data("a\(digits)"), key: steady)], [.write(data("b\(digits)"), key: steady)]]
  case 1: [[.write(data("new"), key: key("not yet"))], [.remove(key: key("not yet"))]]
  case 2:
    // Adds one key and removes one, so that the count stays the same.
    [
      [.write(data("x\(digits)"), key: key("one"))],
      [.remove(key: key("one")), .write(data("x\(digits)"), key: key("two"))],
    ]
  case 3:
    [
      [.write(data("c\(digits)"), key: steady)], [.remove(key: steady)],
      [.write(data("d\(digits)"), key: steady)],
    ]
  case 4: [keys(4, prefix: "several-").map { .write(data(digits), key: $0) }]
  case 5: [[.removeAll], [.write(data("e\(digits)"), key: steady)]]
  default:
    // More than the file had space for when the place was opened.
    [[.write(noise(1 << 20, seed: UInt64(round)), key: key("large"))], [.remove(key: key("large"))]]
  }
}

// MARK: - Locks

private func checkLockAfterSecondOpening(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(data("1"), key: key("before"))
  for _ in 0..<2 {
    if let second = try await context.openUnlessLocked(context.place) { try await context.close(second) }
  }
  try await engine.write(data("2"), key: key("between"))
  try await context.withWorker { worker in
    if context.capabilities.contains(.multiProcess) {
      let work = SharedWork(batchCount: 12)
      try await worker.perform(CallEngine(.open, at: context.place))
      async let theirs: Void = { @concurrent in
        try await worker.perform(CallEngine(.work(work, share: "worker"), at: context.place))
      }()
      try await gather(0..<2) { try await work.perform("task \($0)", on: engine) }
      try await theirs
      try await engine.remove(keys: [key("before"), key("between")])
      try work.verify(
        try await ExpectedContents.agreedEntries(of: engine), by: ["worker", "task 0", "task 1"],
        isAtomic: context.capabilities.contains(.atomicBatches))
    } else {
      do {
        try await worker.perform(CallEngine(.open, at: context.place))
      } catch let error as WorkerError where error.code == StorageError.Code.locked.name {
        return
      }
      throw Violation(
        "another process could open the place that this process had open, after a second engine had been "
          + "opened and closed here"
      )
    }
  }
  try await context.close(engine)
}
