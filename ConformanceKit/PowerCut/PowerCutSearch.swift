import Foundation
import StockroomCore

/// Cuts the power at the moments of a recording, again and again, and looks at what the engine makes of what is left.
struct PowerCutSearch {
  let context: CheckContext
  let scenario: PowerCutScenario
  let since: Date
  let recording: DiskRecording
  /// Where the files were while they were recorded. They are put in the same place again.
  let directory: URL
  /// What the engine may hold when these steps have been acknowledged.
  let histories: ([Int]) -> [PowerCutHistory]

  /// A moment of the recording.
  private struct Moment {
    let index: Int
    let disk: Disk
    let isAfterChange: Bool
    let histories: [PowerCutHistory]
    let acknowledged: Int?
  }

  /// How long an engine may take to open and read what a power cut has left: a few hundred entries.
  fileprivate static let patience = Duration.seconds(60)

  /// Convicts the engine if it cannot stand a state that a power cut could have left.
  ///
  /// - Parameter limit: How many states there are at most. Nil for all of the enumeration.
  /// - Throws: ``Skip`` if the recording does not show everything that the engine did.
  func run(limit: Int?) async throws {
    try checkRecording()
    let inspector = Inspector(self)
    try await checkFinal(inspector)
    var random = SeededRandom(seed: context.effort.seed)
    var chosen: [Int: Int]?
    if let limit { chosen = picks(limit, &random) }
    var seen: Set<[Int]> = []
    try await forEachMoment { moment in
      let wanted = chosen?[moment.index]
      if chosen != nil, wanted == nil { return }
      let kinds = PowerCutStates(moment.disk, isAfterChange: moment.isAfterChange).kinds(&random)
      for candidates in selection(kinds, wanted, &random) {
        // Of a few candidates for one pick, the first that is new.
        for state in candidates {
          let tree = moment.disk.tree { state.fate($0.number) }
          guard seen.insert([tree.fingerprint, moment.histories.hashValue]).inserted else { continue }
          if let verdict = try await inspector.inspect(tree, moment.histories) {
            throw try await conviction(verdict, of: state, at: moment, inspector)
          }
          break
        }
      }
    }
  }

  /// States that power cuts have left at so many moments, and the last step that was acknowledged before each.
  ///
  /// Convicts the engine if it cannot stand one of them.
  func samples(_ count: Int) async throws -> [(tree: DiskTree, acknowledged: Int)] {
    try checkRecording()
    let inspector = Inspector(self)
    var random = SeededRandom(seed: context.effort.seed &+ 1)
    var samples: [(DiskTree, Int)] = []
    let picks = picks(count, &random)
    try await forEachMoment { moment in
      guard picks[moment.index] != nil, let acknowledged = moment.acknowledged, samples.count < count else {
        return
      }
      let kinds = PowerCutStates(moment.disk, isAfterChange: moment.isAfterChange).kinds(&random)
      let state = kinds[random.next(upTo: kinds.count)].randomElement(using: &random) ?? .everything
      let tree = moment.disk.tree { state.fate($0.number) }
      if let verdict = try await inspector.inspect(tree, moment.histories) {
        throw try await conviction(verdict, of: state, at: moment, inspector)
      }
      samples.append((tree, acknowledged))
    }
    return samples
  }
}

// MARK: - Moments

extension PowerCutSearch {
  private func forEachMoment(_ body: (Moment) async throws -> Void) async throws {
    var disk = Disk(recording.initial)
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
        Moment(
          index: index, disk: disk, isAfterChange: isAfterChange, histories: histories(acknowledged),
          acknowledged: acknowledged.last))
    }
  }

  /// How many states to look at at which moments: those at which something has just been acknowledged, and others that
  /// are spread over the whole recording.
  private func picks(_ limit: Int, _ random: inout SeededRandom) -> [Int: Int] {
    var picks: [Int: Int] = [:]
    let count = recording.events.count
    guard count > 0 else { return picks }
    let acknowledgements = recording.events.indices.filter {
      if case .acknowledgement = recording.events[$0].event { true } else { false }
    }
    for index in acknowledgements.prefix(limit / 2) { picks[index, default: 0] += 1 }
    let rest = limit - picks.count
    for number in 0..<rest {
      let index = (number * count + random.next(upTo: count)) / rest
      picks[min(index, count - 1), default: 0] += 1
    }
    return picks
  }

  /// All states one by one or, if only some are wanted, some of each kind: the first is that nothing has reached the disk.
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

// MARK: - Trust in the recording

extension PowerCutSearch {
  private func checkRecording() throws {
    if let obstacle = recording.obstacle { throw Skip(reason: obstacle) }
    guard FileManager.default.fileExists(atPath: directory.systemPath) else { return }
    let difference = recording.final.firstDifference(
      from: try DiskTree(contentsOf: directory), without: recording.mappedFiles)
    if let difference {
      throw Skip(reason: "The recorded operations do not lead to what is in the engine's file \(difference).")
    }
  }

  /// Looks at what the engine has left with everything on the disk. If it misses something there, that was in memory that
  /// no recording shows.
  private func checkFinal(_ inspector: Inspector) async throws {
    let acknowledged = recording.events.compactMap {
      if case .acknowledgement(let step) = $0.event { step } else { nil }
    }
    guard let verdict = try await inspector.inspect(recording.final, histories(acknowledged)) else { return }
    let mapped = recording.final.paths.filter { recording.mappedFiles.contains($0.number) }.map(\.path)
    guard mapped.isEmpty else {
      throw Skip(
        reason: "The engine writes to files through memory, which cannot be recorded: "
          + "\(mapped.joined(separator: ", ")).")
    }
    throw Violation("when it was opened on what it had left, \(verdict.happened)", rule: verdict.rule)
  }
}

// MARK: - Looking at a state

/// Opens the engine in a child, one state after the other.
private final class Inspector {
  private let search: PowerCutSearch
  private var child: ChildProcess?

  init(_ search: PowerCutSearch) { self.search = search }

  deinit { child?.kill() }

  /// What is wrong with what the engine makes of the state. Nil if nothing is.
  func inspect(_ tree: DiskTree, _ histories: [PowerCutHistory]) async throws -> PowerCutVerdict? {
    try tree.layOut(in: search.directory)
    let task = InspectTask(
      directory: search.directory.appending(path: PowerCutRecorder.enginePath), scenario: search.scenario,
      histories: histories, capabilities: search.context.capabilities.rawValue, since: search.since)
    let child = try child ?? search.context.startChild()
    self.child = child
    let result = await withTimeLimit(PowerCutSearch.patience) { () -> Result<[PowerCutVerdict], any Error> in
      do { return .success(try await child.perform(task)) } catch { return .failure(error) }
    }
    switch result {
    case .success(.success(let verdicts)): return verdicts.first
    case .success(.failure(let error)):
      self.child = nil
      try Task.checkCancellation()
      if error is ChildProcess.Misunderstanding { throw error }
      return PowerCutVerdict(error)
    case .failure:
      child.kill()
      self.child = nil
      try Task.checkCancellation()
      return PowerCutVerdict(
        Violation("the engine had not been opened and read after \(PowerCutSearch.patience)"))
    }
  }
}

// MARK: - The verdict

extension PowerCutSearch {
  private func conviction(
    _ verdict: PowerCutVerdict, of state: PowerCutState, at moment: Moment, _ inspector: Inspector
  ) async throws -> Violation {
    let (state, verdict) = try await simplified(state, verdict, at: moment, inspector)
    let events = recording.events
    let changes = events.indices.filter { if case .change = events[$0].event { true } else { false } }
    func operation(_ index: Int) -> String { "\(index + 1): \(events[index].summary)" }
    let pending = moment.disk.pending
    let differing = pending.filter { state.fate($0.number) != .whole }
    let fates =
      differing.isEmpty
      ? "everything had reached the disk"
      : "of what had not been synced this was missing: "
        + listed(differing.map { operation(changes[$0.number]) + state.fate($0.number).remark })
    let recent = events.indices[max(0, moment.index - 11)...moment.index].map(operation)
    return Violation(
      "after a power cut behind operation \(moment.index + 1) of \(events.count), with "
        + (moment.acknowledged.map { "step \($0) acknowledged" } ?? "nothing acknowledged")
        + ", when \(fates), \(verdict.happened). The last operations were \(recent.joined(separator: "; "))",
      rule: verdict.rule)
  }

  /// The same with less missing, as long as the engine fails for it.
  private func simplified(
    _ state: PowerCutState, _ verdict: PowerCutVerdict, at moment: Moment, _ inspector: Inspector
  ) async throws -> (PowerCutState, PowerCutVerdict) {
    var (state, verdict) = (state, verdict)
    for entry in moment.disk.pending.filter({ state.fate($0.number) != .whole }).suffix(60) {
      var simpler = state
      simpler.particular[entry.number] = .whole
      let tree = moment.disk.tree { simpler.fate($0.number) }
      if let found = try await inspector.inspect(tree, moment.histories) {
        (state, verdict) = (simpler, found)
      }
    }
    return (state, verdict)
  }

  private func listed(_ items: [String]) -> String {
    items.count > 8
      ? items.prefix(8).joined(separator: "; ") + "; and \(items.count - 8) more"
      : items.joined(separator: "; ")
  }
}

extension Fate {
  /// What is said behind the operation in a list of those that did not reach the disk as a whole.
  fileprivate var remark: String {
    switch self {
    case .missing, .whole: ""
    case .lengthOnly: " (but for the length of the file)"
    case .sectors(let sectors):
      " (but for \(sectors.count == 1 ? "sector" : "sectors") \(sectors.lowerBound)"
        + (sectors.count == 1 ? ")" : " to \(sectors.upperBound - 1))")
    }
  }
}
