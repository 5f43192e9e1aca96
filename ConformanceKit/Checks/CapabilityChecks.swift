import StockroomCore

// The engine reports exactly the capabilities that the suite was given: the rules of any others would not be checked.

extension CheckDefinition {
  @CheckList static var capabilityChecks: [CheckDefinition] {
    for (name, capability) in EngineCapabilities.named {
      Check(
        rule(for: capability), "capabilities.\(name)",
        "the engine reports the capability \(name), as claimed",
        needs: capability
      ) { context in
        let reported = try await context.open().capabilities
        try expect(reported.contains(capability), "its capabilities were \(reported)")
      }
    }
    // Rule R3 applies to every engine. A failure names the rule of the unexpected capability.
    Check(.r3, "capabilities.no-others", "the engine reports no capability that the suite was not given") {
      context in
      let (reported, given) = (try await context.open().capabilities, context.capabilities)
      for (_, capability) in EngineCapabilities.named
      where reported.contains(capability) && !given.contains(capability) {
        throw Violation(
          "its capabilities were \(reported), but the suite was given only \(given), so the others are not "
            + "checked", rule: rule(for: capability))
      }
    }
  }

  private static func rule(for capability: EngineCapabilities) -> ContractRule {
    switch capability {
    case .atomicBatches: .w4
    case .snapshotReads: .r3
    case .orderedScans: .r5
    case .multiProcess: .c3
    case .detectsCorruption: .f2
    case .transactions: .t1
    case .changeFeed: .x1
    case .networked: .n1
    case .preservesTimestamps: .w2
    default: .w6
    }
  }
}
