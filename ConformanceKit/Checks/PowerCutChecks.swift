import StockroomCore

// Power failures: rules W4 and W6.

extension CheckDefinition {
  @CheckList static var powerCutChecks: [CheckDefinition] {
    Check(
      .w6, "power.cut-while-writing-batches",
      "whatever unsynced data a power cut leaves, the engine opens, has all acknowledged changes (without "
        + "durableWrites: those up to some batch) and no partial batch, and accepts writes",
      needs: .persistent,
      needsWorker: true
    ) { context in
      let recorder = try PowerCutRecorder(context, PowerCutScenario(context.budget))
      try await recorder.recordScenario().run(limit: context.budget.powerCuts)
    }
    Check(
      .w6, "power.cut-while-overwriting",
      "after a power cut while a few keys are overwritten with megabytes, so that logs are compacted, merged or restarted, the engine "
        + "opens, has all acknowledged changes (without durableWrites: those up to some batch) and no partial batch",
      needs: .persistent,
      needsWorker: true
    ) { context in
      var scenario = PowerCutScenario(seed: context.budget.seed, length: 16)
      // SQLite restarts its log after 4 MB, and LevelDB after at most 8 MiB.
      scenario.overwriteSize = context.byLevel(quick: 100_000, standard: 340_000, exhaustive: 340_000)
      let recorder = try PowerCutRecorder(context, scenario)
      try await recorder.recordScenario().run(limit: context.budget.powerCuts)
    }
    Check(
      .w6, "power.cut-while-recovering",
      "after a second power cut, while the engine recovers from the first or works after it, all "
        + "acknowledged changes are there and no partial batch",
      needs: [.persistent, .durableWrites, .atomicBatches], needsWorker: true
    ) { context in
      let limit = context.budget.powerCuts
      let recorder = try PowerCutRecorder(context, PowerCutScenario(context.budget))
      let samples = try await recorder.recordScenario().samples(limit.map { min(30, 1 + $0 / 60) } ?? 30)
      if samples.isEmpty { throw Skip(reason: "Nothing was acknowledged while the engine was recorded.") }
      let searches = try await recorder.recordRecoveries(from: samples)
      for search in searches { try await search.run(limit: limit.map { $0 / 2 / searches.count }) }
    }
  }
}

extension PowerCutScenario {
  /// A scenario that is long enough for the budget's number of states.
  fileprivate init(_ budget: ConformanceBudget) {
    let states = budget.powerCuts ?? .max
    self.init(seed: budget.seed, length: states < 1_000 ? 14 : 40)
  }
}
