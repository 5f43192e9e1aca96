import StockroomCore

// Faults that only appear after many changes, and leaks: rules W1, W6, F2 and O4.

extension CheckDefinition {
  @CheckList static var longLifeChecks: [CheckDefinition] {
    Check(
      .w1, "life.of-few-keys",
      "after thousands of writes, overwrites and removals of few keys, nothing is lost, restored, reordered "
        + "or given other timestamps"
    ) { context in
      try await LongLife.run(context, context.callsOfLongLife(), isReopened: false)
    }
    Check(
      .w6, "life.of-few-keys-reopened",
      "after thousands of writes, overwrites and removals of few keys, with reopening in between, nothing is "
        + "lost, restored, reordered or given other timestamps", needs: .persistent
    ) { context in
      try await LongLife.run(context, context.callsOfLongLife(), isReopened: true)
    }
    Check(
      .w6, "life.killed-late",
      "when a process is killed after thousands of changes of few keys, the acknowledged changes are there, "
        + "and nothing else",
      needs: .persistent, needsWorker: true, from: .standard
    ) { context in
      try await checkKillsLate(
        context,
        after: context.rounds(quick: 500, standard: 5_000, exhaustive: 100_000, of: "calls before the kills"))
    }
    Check(
      .f2, "life.corrupted-late",
      "whatever corrupts a file of a store that was changed thousands of times, opening, reading and writing "
        + "neither trap nor hang, and throw corrupted or return the remaining entries", needs: .persistent,
      needsWorker: true,
      isOfFiles: true, from: .standard
    ) { context in
      var run = try await CorruptionRun(in: context, script: .lived, mustHaveWorker: true)
      let seed = ~context.budget.seed
      let rounds = context.rounds(
        quick: 10, standard: 60, exhaustive: context.budget.corruptions, of: "corruptions")
      for number in rounds {
        try await run.check(run.corruption(number: number, seed: seed))
        if !run.violations.isEmpty { break }
      }
      try run.finish(", seed \(seed)")
    }
    Check(
      .w1, "life.many-entries",
      "with any number of entries, none is evicted, and calls for all entries cover each of them"
    ) { context in
      try await ManyEntries(context: context, batchSize: 1_000, valueSize: 40).run(
        context.rounds(quick: 4, standard: 105, exhaustive: 1_000, of: "thousands of entries"))
    }
    Check(.w1, "life.many-bytes", "with any total size of values, none is evicted") { context in
      try await ManyEntries(context: context, batchSize: 4, valueSize: 256 << 10).run(
        context.rounds(quick: 16, standard: 132, exhaustive: 2_048, of: "MiB"))
    }
    for question in ResourceBounds.Question.allCases {
      Check(
        .o4, "life.\(question.name)", question.expectation, needsWorker: true,
        from: [.overwrites, .openings, .absentKeys].contains(question) ? .standard : .quick
      ) { context in
        try await context.check(
          ResourceBounds(
            place: context.place, question: question, level: context.budget.level,
            limits: context.releaseLimits))
      }
    }
  }
}

extension CheckContext {
  fileprivate func callsOfLongLife() -> RoundLimit {
    rounds(quick: 2_000, standard: 70_000, exhaustive: 500_000, of: "calls")
  }
}
