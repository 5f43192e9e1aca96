import StockroomCore
import StockroomStore

extension Workload {
  static let writeOneWatched = writeOne.watched
  static let writeBatchesWatched = writeBatches(of: 10_000).watched

  /// Measures how soon a store shows an item that another process has written.
  static func follow(among count: Int) -> Workload {
    Workload(
      "follow-\(count)",
      "Another process changes an item of a store of \(count), 50 times. An operation is the time until the store shows it.",
      startsFrom: .nothing, leaves: .somethingElse, entries: count, valueSize: StoredItem.meanSize,
      needs: [.persistent, .multiProcess, .changeFeed], needsWorker: true
    ) { run in
      try await followAnotherProcess(run, itemCount: count, changes: 50)
    }
  }

  /// The same workload while a task reads the changes of the engine.
  private var watched: Workload {
    Workload(
      "\(name)-watched", summary + " Meanwhile a task reads the changes.", startsFrom: startsFrom,
      leaves: .somethingElse, entries: entries, valueSize: valueSize, needs: needs.union(.changeFeed),
      needsWorker: needsWorker
    ) { run in
      let changes = try await run.engine.changes()
      let subscriber = Task { await changes.reduce(into: []) { $0.append($1) } }
      do {
        try await body(run)
      } catch {
        subscriber.cancel()
        throw error
      }
      let written = Set(try await run.engine.allKeys())
      // Ends the stream after the changes of all commits.
      try await run.close()
      var reported: Set<CacheKey>? = []
      for change in await subscriber.value {
        if case .keys(let keys) = change { reported?.formUnion(keys) } else { reported = nil }
      }
      try await run.open()
      if let reported, reported != written {
        throw WrongAnswer(
          "\(reported.count) keys were reported as changed, and \(written.count) were written")
      }
    }
  }
}

@MainActor private func followAnotherProcess(
  _ run: WorkloadRun, itemCount: Int, changes: Int
) async throws {
  try await run.engine.write(StoredItem.entries(0..<itemCount))
  let store = try await Store<StoredItem>(storage: run.engine)
  let worker = try await run.startWorker()
  let changed = StoredItem.numbered(0..<changes + 1, name: "changed elsewhere")
  let entries = try StoredItem.entries(0..<changes + 1, name: "changed elsewhere")
  let events = store.events
  func change(_ number: Int) async throws {
    try worker.startWriting(entries[number].data, key: entries[number].key)
    let isShown = Task {
      if store.items[number] == changed[number] { return true }
      for await _ in events where store.items[number] == changed[number] { return true }
      return false
    }
    let timeout = Task {
      try await Task.sleep(for: .seconds(60))
      isShown.cancel()
    }
    defer { timeout.cancel() }
    let hasArrived = await withTaskCancellationHandler {
      await isShown.value
    } onCancel: {
      isShown.cancel()
    }
    guard hasArrived else {
      try Task.checkCancellation()
      throw WrongAnswer("a minute after another process had changed an item the store did not show it")
    }
  }
  // The first change is not measured, since it can include one-time costs such as opening files.
  try await change(changes)
  try await worker.waitForAnswer()
  try await run.measure(operations: changes) { latencies in
    for number in 0..<changes {
      try await change(number)
      latencies.record()
      try await latencies.exclude { try await worker.waitForAnswer() }
    }
  }
  try await worker.end()
}
