import StockroomCore

// Generated histories: any rule that can be broken by one call after the other.

extension CheckDefinition {
  @CheckList static var historyChecks: [CheckDefinition] {
    history(
      .w1, .singleCalls,
      "reads and writes of one entry at a time, in any order, are answered as the contract says")
    history(
      .w5, .batches, "batches with repeats, removals and invalid keys, in any order, do what their steps do")
    history(.r3, .everything, "any calls in any order are answered as the contract says")
    history(
      .w6, .reopened, "nothing changes when the engine is opened anew, after close() or without it",
      needs: .persistent)
  }

  private static func history(
    _ rule: ContractRule, _ profile: HistoryProfile, _ expectation: String, needs: EngineCapabilities = []
  ) -> CheckDefinition {
    Check(rule, profile.check, expectation, needs: needs) { context in
      try await HistorySearch(profile: profile, context: context).run()
    }
  }
}
