import StockroomCore

// The engine reports just the capabilities that the suite was given: what is promised is checked.

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
    Check(
      .w4, "capabilities.are-all-checked",
      "the engine reports no capability that the suite was not given, and so does not check"
    ) { context in
      let reported = try await context.open().capabilities
      for (name, capability) in EngineCapabilities.named
      where reported.contains(capability) && !context.capabilities.contains(capability) {
        throw Violation("it reported \(name)", rule: rule(for: capability))
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
    default: .w6
    }
  }
}
