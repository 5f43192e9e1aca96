import Foundation
import StockroomCore
import StockroomKitSupport

/// Simulates power cuts at the points of a recording, and checks how the engine opens each state.
struct PowerCutSearch {
  let context: CheckContext
  let scenario: PowerCutScenario
  let since: Date
  let recording: DiskRecording
  /// The place of the files during the recording. The states are created in the same place.
  let directory: URL
  /// The possible contents after these steps have been acknowledged.
  let candidates: ([Int]) -> [PowerCutCandidate]

  /// A point in the recording at which the power may be cut.
  struct CrashPoint {
    let index: Int
    let disk: SimulatedDisk
    let isAfterChange: Bool
    let candidates: [PowerCutCandidate]
    let acknowledged: Int?
  }

  /// The time limit for opening and reading a state with a few hundred entries.
  static let timeout = Duration.seconds(60)

  /// Fails if the engine does not recover from a possible state after a power cut.
  ///
  /// - Parameter limit: The maximum number of states. Nil for all.
  /// - Throws: ``Skip`` if the recording does not show everything that the engine did.
  func run(limit: Int?) async throws {
    context.noteProgress()
    try checkRecording()
    let inspector = PowerCutInspector(self)
    try await checkFinal(inspector)
    var random = SeededRandom(seed: context.budget.seed)
    var chosen: [Int: Int]?
    if let limit { chosen = picks(limit, from: 0, &random) }
    var seen: Set<[Int]> = []
    try await forEachCrashPoint { point in
      let wanted = chosen?[point.index]
      if chosen == nil ? isLikeOthers(point) : wanted == nil { return }
      let kinds = PowerCutStates(point.disk, isAfterChange: point.isAfterChange).kinds(&random)
      for candidates in selection(kinds, wanted, &random) {
        // Uses the first of a few random candidates that is new.
        for state in candidates {
          context.noteProgress()
          let tree = point.disk.tree { state.outcome($0.number) }
          guard seen.insert([tree.fingerprint, point.candidates.hashValue]).inserted else { continue }
          if let violation = try await inspector.inspect(tree, point.candidates) {
            throw try await report(violation, of: state, at: point, inspector)
          }
          break
        }
      }
    }
  }

  /// States after power cuts at this many points, with the last step that was acknowledged before each.
  ///
  /// Fails if the engine does not recover from one of them.
  func samples(_ count: Int) async throws -> [(tree: DiskTree, acknowledged: Int)] {
    try checkRecording()
    let inspector = PowerCutInspector(self)
    var random = SeededRandom(seed: context.budget.seed &+ 1)
    var samples: [(DiskTree, Int)] = []
    let picks = picks(count, from: acknowledgements.first ?? 0, &random)
    try await forEachCrashPoint { point in
      guard picks[point.index] != nil, let acknowledged = point.acknowledged, samples.count < count else {
        return
      }
      let kinds = PowerCutStates(point.disk, isAfterChange: point.isAfterChange).kinds(&random)
      let state = kinds[random.next(upTo: kinds.count)].randomElement(using: &random) ?? .everything
      let tree = point.disk.tree { state.outcome($0.number) }
      context.noteProgress()
      if let violation = try await inspector.inspect(tree, point.candidates) {
        throw try await report(violation, of: state, at: point, inspector)
      }
      samples.append((tree, acknowledged))
    }
    return samples
  }
}

// MARK: - Crash points

extension PowerCutSearch {
  private func forEachCrashPoint(_ body: (CrashPoint) async throws -> Void) async throws {
    var disk = SimulatedDisk(recording.initial)
    var acknowledged: [Int] = []
    for (index, event) in recording.events.enumerated() {
      var isAfterChange = false
      switch event.event {
      case .change(let change):
        disk.make(change)
        isAfterChange = true
      case .sync(let sync): disk.sync(sync)
      case .acknowledgement(let step): acknowledged.append(step)
      }
      try Task.checkCancellation()
      try await body(
        CrashPoint(
          index: index, disk: disk, isAfterChange: isAfterChange, candidates: candidates(acknowledged),
          acknowledged: acknowledged.last))
    }
  }

  /// Whether to skip the point because it hardly differs from its neighbors: six of seven points after a hundred
  /// pending changes of the same file.
  private func isLikeOthers(_ point: CrashPoint) -> Bool {
    guard point.isAfterChange, point.index % 7 > 0 else { return false }
    let latest = point.disk.pending.suffix(100)
    guard latest.count == 100, let file = latest.last?.change.file else { return false }
    return latest.allSatisfy { $0.change.file == file }
  }

  private var acknowledgements: [Int] {
    recording.events.indices.filter {
      if case .acknowledgement = recording.events[$0].event { true } else { false }
    }
  }

  private var nameChanges: [Int] {
    recording.events.indices.filter {
      if case .change(let change) = recording.events[$0].event { !change.names.isEmpty } else { false }
    }
  }

  /// How many states to check at each point. Includes points right after an acknowledgement, and others spread evenly
  /// over the whole recording from the first point on. If logs are compacted, half of the others are points at which the
  /// name of a file changes.
  private func picks(_ limit: Int, from first: Int, _ random: inout SeededRandom) -> [Int: Int] {
    var picks: [Int: Int] = [:]
    let count = recording.events.count - first
    guard count > 0 else { return picks }
    for index in acknowledgements.prefix(limit / 2) { picks[index, default: 0] += 1 }
    if scenario.overwriteSize != nil {
      for index in nameChanges.shuffled(using: &random).prefix((limit - picks.count) / 2) {
        picks[index, default: 0] += 1
      }
    }
    let rest = limit - picks.count
    for number in 0..<rest {
      let index = (number * count + random.next(upTo: count)) / rest
      picks[first + min(index, count - 1), default: 0] += 1
    }
    return picks
  }

  /// All states or, if only some are wanted, some of each kind. In the first state, no change has reached the disk.
  private func selection(
    _ kinds: [[PowerCutState]], _ wanted: Int?, _ random: inout SeededRandom
  ) -> [[PowerCutState]] {
    guard let wanted else { return kinds.joined().map { [$0] } }
    return (0..<wanted).map { number in
      let candidates = (0..<6).compactMap { _ in
        kinds[random.next(upTo: kinds.count)].randomElement(using: &random)
      }
      return number == 0 ? [kinds[0][0]] + candidates : candidates
    }
  }
}

// MARK: - Validating the recording

extension PowerCutSearch {
  private func checkRecording() throws {
    if let limitation = recording.limitation { throw Skip(reason: limitation) }
    guard FileManager.default.fileExists(atPath: directory.systemPath) else { return }
    let difference = recording.final.firstDifference(
      from: try DiskTree(contentsOf: directory), without: recording.mappedFiles)
    if let difference {
      throw Skip(
        reason: "Replaying the recorded operations does not reproduce the engine's file \(difference).")
    }
  }

  /// Checks the state in which all changes are on the disk. If something is missing in it, the engine wrote it through
  /// mapped memory, which the recording does not show.
  private func checkFinal(_ inspector: PowerCutInspector) async throws {
    let acknowledged = recording.events.compactMap {
      if case .acknowledgement(let step) = $0.event { step } else { nil }
    }
    guard let violation = try await inspector.inspect(recording.final, candidates(acknowledged)) else {
      return
    }
    let mapped = recording.final.paths.filter { recording.mappedFiles.contains($0.number) }.map(\.path)
    guard mapped.isEmpty else {
      throw Skip(
        reason: "The engine writes to files through mapped memory, which cannot be recorded: "
          + "\(mapped.joined(separator: ", ")).")
    }
    throw Violation(
      "when it was opened with every recorded change on disk, \(violation.description)", rule: violation.rule)
  }
}
