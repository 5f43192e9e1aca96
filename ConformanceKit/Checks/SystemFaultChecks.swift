import StockroomCore

// System calls that fail: rules F4 and W6.

extension CheckDefinition {
  @CheckList static var systemFaultChecks: [CheckDefinition] {
    Check(
      .f4, "faults.system-calls",
      "whichever system call fails or transfers only half of its bytes, acknowledged changes are there, those that "
        + "threw are not, and the engine continues to work, or throws until it is reopened",
      needs: .persistent, needsWorker: true
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
      "whichever system call fails while a method reads, it returns the right result or throws, and later "
        + "reads are right",
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
      "whichever system call fails during a change, the change returns and is done, or throws and is not; "
        + "and failures during opening and closing lose nothing",
      needs: .persistent, needsWorker: true
    ) { context in
      let limit = context.byLevel(quick: 24, standard: 120, exhaustive: nil as Int?)
      try await context.check(
        FailingChanges(
          place: context.place, methods: ChangeMethod.all(context.capabilities),
          isAtomic: context.capabilities.contains(.atomicBatches), seed: context.budget.seed, limit: limit))
    }
    Check(
      .f4, "faults.compactions",
      "whichever system call fails in the one of many overwrites that makes the most calls, because the engine "
        + "compacts its files, nothing is lost, and the engine continues to work, or throws until it is reopened",
      needs: .persistent, needsWorker: true, from: .standard
    ) { context in
      let limit = context.byLevel(quick: 0, standard: 10, exhaustive: nil as Int?)
      try await context.check(
        FailingCompactions(
          place: context.place, isAtomic: context.capabilities.contains(.atomicBatches),
          seed: context.budget.seed, limit: limit))
    }
    Check(
      .x1, "faults.feeds",
      "whichever system call fails while a subscriber follows writes of another process, all of them are "
        + "covered, unless changes() throws", needs: [.persistent, .multiProcess, .changeFeed],
      needsWorker: true
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
      "after a failed sync, the engine acknowledges nothing that the sync should have made durable, unless "
        + "it writes it again",
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
    timeout: context.timeout(atMost: .seconds(30)))
  try await context.withWorker { worker in
    for try await key in try worker.start(feeds) {
      context.noteProgress()
      try await engine.write(data("v"), key: CacheKey(verbatim: key))
    }
  }
}
