#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Engines that open a place at the same time: one in each of some processes, the others in this one.
struct OpeningRace: Sendable {
  /// Races on new places, where no engine closes until all have opened, and on places of a killed process, where each
  /// engine closes and opens again at once.
  static func check(_ context: CheckContext, beside workers: [WorkerProcess]) async throws {
    let rounds = context.byLevel(quick: 2, standard: 8, exhaustive: 300)
    let count = workers.isEmpty ? 6 : 2 + workers.count
    // A thread for each, since opening may block its thread.
    let threads = CheckExecutor(count: count)
    defer { threads.stop() }
    for round in 0..<rounds {
      context.noteProgress()
      for worker in workers { try await worker.waitUntilReady() }
      let place = context.root.appending(path: "race-\(round)/new/place", directoryHint: .isDirectory)
      let race = OpeningRace(
        context: context, workers: workers, count: count, threads: threads, place: place)
      if round.isMultiple(of: 2) { try await race.openOnce() } else { try await race.openAgainAndAgain() }
    }
  }

  private enum Outcome: Sendable {
    case locked
    /// Opened. The engine is nil if a worker process has opened it. The key is the one that was written, or nil if the
    /// write threw `locked`.
    case open(EngineUnderTest?, CacheKey?)
  }

  private let context: CheckContext
  private let workers: [WorkerProcess]
  private let count: Int
  private let threads: CheckExecutor
  private let place: URL

  private init(
    context: CheckContext, workers: [WorkerProcess], count: Int, threads: CheckExecutor, place: URL
  ) {
    (self.context, self.workers, self.count) = (context, workers, count)
    (self.threads, self.place) = (threads, place)
  }

  /// The process that opens the place for this participant. Nil if it is this process.
  private func worker(of number: Int) -> WorkerProcess? {
    workers.indices.contains(number) ? workers[number] : nil
  }

  // MARK: - A new place

  private func openOnce() async throws {
    let opened = try await withTaskExecutorPreference(threads) {
      try await gather(0..<count) { try await outcome(of: $0) }
    }
    let written = opened.compactMap { if case .open(_, let key) = $0 { key } else { nil } }
    for case .open(let engine?, _) in opened { try await expectStored(entries(written), in: engine) }
    for (worker, outcome) in zip(workers, opened) {
      if case .open = outcome { try await worker.perform(CallEngine(.close, at: place)) }
    }
    for case .open(let engine?, _) in opened { try await context.close(engine) }
    let engine = try await context.open(place)
    try await expectStored(entries(written), in: engine)
    try expect(try await engine.keyCount(), is: written.count, "keyCount() after \(count) concurrent opens")
    try await context.close(engine)
  }

  private func outcome(of number: Int) async throws -> Outcome {
    let key = key("racer-\(number)")
    if let worker = worker(of: number) {
      guard try await open(in: worker) else { return .locked }
      return .open(nil, try await isDone { try await write(key, in: worker) } ? key : nil)
    }
    guard let engine = try await context.openUnlessLocked(place) else { return .locked }
    return .open(engine, try await isDone { try await engine.write(value(for: key), key: key) } ? key : nil)
  }

  // MARK: - A place that was left

  private func openAgainAndAgain() async throws {
    let left = key("before the process was killed")
    let isLeft = try await leaveBehind(left)
    let written = try await withTaskExecutorPreference(threads) {
      try await gather(0..<count) { try await visits(of: $0) }
    }
    let keys = (isLeft ? [left] : []) + written.flatMap { $0 }
    let engine = try await context.open(place)
    try await ExpectedContents.settle(engine)
    do {
      try await expectStored(entries(keys), in: engine)
    } catch let violation as Violation {
      throw Violation(
        "after \(count) engines had opened the place, written to it and closed it 12 times concurrently, "
          + "\(violation.description)")
    }
    _ = try await ExpectedContents.agreedEntries(of: engine)
    try await context.close(engine)
  }

  /// Has a process write an entry, and kills it during its next write. Returns false if there is no process.
  private func leaveBehind(_ key: CacheKey) async throws -> Bool {
    let worker: WorkerProcess
    do { worker = try context.startWorker() } catch is Skip { return false }
    defer { worker.kill() }
    try await translatingWorkerErrors {
      try await worker.perform(CallEngine(.open, at: place))
      try await write(key, in: worker)
      let work = CallEngine(.work(SharedWork(batchCount: 100_000), share: "killed"), at: place)
      var processKiller = ProcessKiller(seed: context.budget.seed)
      _ = try await processKiller.kill(worker, at: .working(limit: 1), of: work)
    }
    await worker.waitUntilEnd()
    return true
  }

  /// Opens, writes and closes repeatedly. Returns the acknowledged keys.
  private func visits(of number: Int) async throws -> [CacheKey] {
    var written: [CacheKey] = []
    for visit in 0..<12 {
      let key = key("racer-\(number)-\(visit)")
      if try await isWritten(key, by: number) { written.append(key) }
    }
    return written
  }

  private func isWritten(_ key: CacheKey, by number: Int) async throws -> Bool {
    if let worker = worker(of: number) {
      guard try await open(in: worker) else { return false }
      let isAcknowledged = try await isDone { try await write(key, in: worker) }
      try await worker.perform(CallEngine(.close, at: place))
      return isAcknowledged
    }
    guard let engine = try await context.openUnlessLocked(place) else { return false }
    let isAcknowledged = try await isDone { try await engine.write(value(for: key), key: key) }
    try await context.close(engine)
    return isAcknowledged
  }

  // MARK: - Calls

  private func open(in worker: WorkerProcess) async throws -> Bool {
    try await isDone { try await worker.perform(CallEngine(.open, at: place)) }
  }

  private func write(_ key: CacheKey, in worker: WorkerProcess) async throws {
    let entry = SharedWork.Entry(key: key.value, data: value(for: key))
    try await worker.perform(CallEngine(.write([entry]), at: place))
  }

  /// Whether the call returned. Returns false if it threw `locked`, which is allowed.
  private func isDone(_ call: () async throws -> Void) async throws -> Bool {
    do {
      try await call()
      return true
    } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .locked {
      return false
    } catch let error as WorkerError where error.code == StorageError.Code.locked.name {
      return false
    }
  }
}
