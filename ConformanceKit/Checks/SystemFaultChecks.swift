import StockroomCore

// Calls of the system that fail: rules F4 and W6.

extension CheckDefinition {
  @CheckList static var systemFaultChecks: [CheckDefinition] {
    Check(
      .f4, "faults.system-calls",
      "whichever call of the system fails or does half of its work, what was acknowledged is there, what threw is not, "
        + "and the engine goes on, or throws until it is opened again", needs: .persistent, needsWorker: true
    ) { context in
      let calls = SystemCall.allCases
      let search =
        switch context.budget.level {
        case .quick: SystemFaultSearch(context, calls, limit: 6)
        case .standard: SystemFaultSearch(context, calls, limit: 48)
        case .exhaustive: SystemFaultSearch(context, calls, .steps(200), limit: nil)
        }
      try await search.run()
    }
    Check(
      .r4, "faults.every-read",
      "whichever call of the system fails while a method reads, it gives the right answer or throws, and nothing wrong afterwards",
      needs: .persistent, needsWorker: true
    ) { context in
      let limit = context.byLevel(quick: 60, standard: 300, exhaustive: nil as Int?)
      try await context.check(
        FailingReads(
          place: context.place, hasTransactions: context.capabilities.contains(.transactions),
          seed: context.budget.seed, limit: limit))
    }
    Check(
      .f4, "faults.every-change",
      "whichever call of the system fails while a method changes something, that is done or not at all, and the method says which; "
        + "nothing is lost where one fails while the engine is opened or closed",
      needs: .persistent, needsWorker: true
    ) { context in
      let limit = context.byLevel(quick: 24, standard: 120, exhaustive: nil as Int?)
      try await context.check(
        FailingChanges(
          place: context.place, methods: ChangeMethod.all(context.capabilities),
          isAtomic: context.capabilities.contains(.atomicBatches), seed: context.budget.seed, limit: limit))
    }
    Check(
      .x1, "faults.feeds",
      "whichever call of the system fails while a subscriber follows what another process writes, all of that is covered, "
        + "unless changes() throws", needs: [.persistent, .multiProcess, .changeFeed], needsWorker: true
    ) { context in
      let limit = context.byLevel(quick: 12, standard: 60, exhaustive: nil as Int?)
      try await checkFailingFeeds(context, limit: limit)
    }
    Check(
      .f4, "faults.concurrent-changes",
      "whichever system call fails while several tasks make changes, no change is lost, made in part or made twice",
      needs: [.persistent, .atomicBatches, .transactions], needsWorker: true
    ) { context in
      let limit = context.byLevel(quick: 6, standard: 40, exhaustive: nil as Int?)
      try await SystemFaultSearch(context, SystemCall.allCases, .concurrent, limit: limit).run()
    }
    Check(
      .w6, "faults.failed-syncs",
      "a failed sync is followed by no acknowledgement of what it should have made durable, unless that is written again",
      needs: [.persistent, .durableWrites], needsWorker: true, from: .standard
    ) { context in
      let calls: [SystemCall] = [.fsync, .fdatasync]
      let search =
        context.budget.level == .exhaustive
        ? SystemFaultSearch(context, calls, .steps(40), limit: nil, losesUnsynced: true)
        : SystemFaultSearch(context, calls, failures: [.inputOutput], limit: 16, losesUnsynced: true)
      try await search.run()
    }
  }
}

private func checkFailingFeeds(_ context: CheckContext, limit: Int?) async throws {
  let engine = try await context.open()
  let feeds = FailingFeeds(
    place: context.place, seed: context.budget.seed, limit: limit,
    patience: context.patience(atMost: .seconds(30)))
  try await context.withWorker { worker in
    for try await key in try worker.start(feeds) {
      context.noteProgress()
      try await engine.write(data("v"), key: CacheKey(verbatim: key))
    }
  }
}
