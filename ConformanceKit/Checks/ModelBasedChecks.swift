import StockroomCore

// Generated sequences: any rule that can be broken by one call after the other.

extension CheckDefinition {
  @CheckList static var modelBasedChecks: [CheckDefinition] {
    sequence(
      .w1, .singleCalls,
      "reads and writes of one entry at a time, in any order, are answered as the contract says")
    sequence(
      .w5, .batches, "batches with repeats, removals and invalid keys, in any order, do what their steps do")
    sequence(.r3, .everything, "any calls in any order are answered as the contract says")
    sequence(
      .t2, .transactions,
      "the bodies of transactions read what the contract says, and change it, throwing or not",
      needs: .transactions)
    sequence(
      .w6, .reopened, "nothing changes when the engine is reopened, after close() or without it",
      needs: .persistent)
  }

  private static func sequence(
    _ rule: ContractRule, _ profile: CommandProfile, _ expectation: String, needs: EngineCapabilities = []
  ) -> CheckDefinition {
    Check(rule, profile.check, expectation, needs: needs) { context in
      try await ModelBasedSearch(profile: profile, context: context).run()
    }
  }
}
