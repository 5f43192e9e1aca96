import StockroomCore

// Generated sequences: any rule that sequential calls can break.

extension CheckDefinition {
  @CheckList static var modelBasedChecks: [CheckDefinition] {
    sequence(
      .w1, .singleCalls,
      "random sequences of reads and writes of single entries return what the contract says")
    sequence(
      .w5, .batches,
      "random sequences of batches with repeats, removals and invalid keys have the same result as their "
        + "steps")
    sequence(.r3, .everything, "random sequences of all calls return what the contract says")
    sequence(
      .t2, .transactions,
      "in random sequences, the bodies of transactions, throwing or not, read and change what the contract "
        + "says",
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
