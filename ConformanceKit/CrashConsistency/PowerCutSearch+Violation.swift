extension PowerCutSearch {
  /// Describes the violation, the point of the power cut, and a minimal set of lost changes.
  func report(
    _ violation: Violation, of state: PowerCutState, at point: CrashPoint, _ inspector: PowerCutInspector
  ) async throws -> Violation {
    let (state, violation) = try await simplified(state, violation, at: point, inspector)
    let events = recording.events
    let changes = events.indices.filter { if case .change = events[$0].event { true } else { false } }
    func operation(_ index: Int) -> String { "\(index + 1): \(events[index].summary)" }
    let pending = point.disk.pending
    let differing = pending.filter { state.outcome($0.number) != .whole }
    let losses =
      differing.isEmpty
      ? "everything had reached the disk"
      : "these unsynced changes were lost: "
        + listed(differing.map { operation(changes[$0.number]) + state.outcome($0.number).remark })
    let recent = events.indices[max(0, point.index - 11)...point.index].map(operation)
    return Violation(
      "after a power cut following operation \(point.index + 1) of \(events.count), with "
        + (point.acknowledged.map { "step \($0) acknowledged" } ?? "nothing acknowledged")
        + ", where \(losses), \(violation.description). The last operations were "
        + "\(recent.joined(separator: "; "))",
      rule: violation.rule)
  }

  /// The same violation with fewer lost changes, as long as the engine still fails.
  private func simplified(
    _ state: PowerCutState, _ violation: Violation, at point: CrashPoint, _ inspector: PowerCutInspector
  ) async throws -> (PowerCutState, Violation) {
    var (state, violation) = (state, violation)
    for entry in point.disk.pending.filter({ state.outcome($0.number) != .whole }).suffix(60) {
      var simpler = state
      simpler.particular[entry.number] = .whole
      let tree = point.disk.tree { simpler.outcome($0.number) }
      if let found = try await inspector.inspect(tree, point.candidates) {
        (state, violation) = (simpler, found)
      }
    }
    return (state, violation)
  }

  private func listed(_ items: [String]) -> String {
    items.count > 8
      ? items.prefix(8).joined(separator: "; ") + "; and \(items.count - 8) more"
      : items.joined(separator: "; ")
  }
}

extension PersistenceOutcome {
  /// The remark in a list of operations that did not reach the disk completely.
  fileprivate var remark: String {
    switch self {
    case .missing, .whole: ""
    case .lengthOnly: " (except the length of the file)"
    case .sectors(let sectors):
      " (except \(sectors.count == 1 ? "sector" : "sectors") \(sectors.lowerBound)"
        + (sectors.count == 1 ? ")" : " to \(sectors.upperBound - 1))")
    }
  }
}
