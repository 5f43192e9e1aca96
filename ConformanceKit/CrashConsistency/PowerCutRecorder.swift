import Foundation
import StockroomCore

/// Records the system calls of an engine.
struct PowerCutRecorder {
  /// The path of the engine's place, below an existing directory. The engine must create the missing directories, and
  /// make them durable.
  static let enginePath = "new/store"

  let context: CheckContext
  let scenario: PowerCutScenario
  let since: Date
  private let strace: Strace
  /// Without symbolic links, because the system reports real paths.
  private let root: URL

  /// - Throws: ``Skip`` if nothing can be recorded here.
  init(_ context: CheckContext, _ scenario: PowerCutScenario) throws {
    (self.context, self.scenario) = (context, scenario)
    since = Date()
    strace = try Strace()
    root = context.root.resolvingSymlinksInPath()
  }

  /// Records the whole scenario, in a new place.
  func recordScenario() async throws -> PowerCutSearch {
    let directory = root.appending(path: "disk", directoryHint: .isDirectory)
    try DiskTree().layOut(in: directory)
    let task = task(0, in: directory, 1...scenario.length)
    let (_, calls) = try await strace.record([task], in: context)
    return search(calls, 0, directory, DiskTree()) { acknowledged in
      // Opening is step 0.
      let last = acknowledged.last ?? 0
      // Without durable writes, any number of the last batches may be lost.
      let first = context.capabilities.contains(.durableWrites) ? last : 0
      return (first...last).reversed().map { PowerCutCandidate(through: $0, underWay: $0 + 1) }
    }
  }

  /// Records how the engine recovers after power cuts, and a few steps after that.
  func recordRecoveries(from samples: [(tree: DiskTree, acknowledged: Int)]) async throws -> [PowerCutSearch]
  {
    var tasks: [TakeStepsTask] = []
    for (run, sample) in samples.enumerated() {
      let directory = root.appending(path: "recovery-\(run)", directoryHint: .isDirectory)
      try sample.tree.layOut(in: directory)
      let last = sample.acknowledged
      var task = task(run, in: directory, (last + 2)...(last + 4))
      task.candidates = [PowerCutCandidate(through: last), PowerCutCandidate(through: last + 1)]
      tasks.append(task)
    }
    let (messages, calls) = try await strace.record(tasks, in: context)
    return try zip(samples, tasks).map { sample, task in
      let opened = messages.first { $0.run == task.run }
      if let violation = opened?.violation {
        throw Violation("after a power cut \(violation.description)", rule: violation.rule)
      }
      let directory = root.appending(path: "recovery-\(task.run)", directoryHint: .isDirectory)
      return search(calls, task.run, directory, sample.tree) { acknowledged in
        candidates(acknowledged, after: sample.acknowledged, isNextThere: opened?.candidate == 1)
      }
    }
  }

  /// The possible contents during a recovery.
  ///
  /// The step that was in progress at the first cut may or may not be there, and may be lost again, until a later step
  /// has been acknowledged. The later step was performed on the contents that the recovery found.
  private func candidates(_ acknowledged: [Int], after last: Int, isNextThere: Bool) -> [PowerCutCandidate] {
    guard let step = acknowledged.last else { return [PowerCutCandidate(through: last, underWay: last + 1)] }
    if step > last + 1 {
      return [PowerCutCandidate(through: step, without: isNextThere ? nil : last + 1, underWay: step + 1)]
    }
    return [
      PowerCutCandidate(through: last, underWay: last + 1),
      PowerCutCandidate(through: isNextThere ? last + 1 : last, underWay: last + 2),
    ]
  }

  private func task(_ run: Int, in directory: URL, _ steps: ClosedRange<Int>) -> TakeStepsTask {
    TakeStepsTask(
      run: run, directory: directory.appending(path: Self.enginePath), scenario: scenario, steps: steps,
      capabilities: context.capabilities.rawValue, since: since)
  }

  private func search(
    _ calls: [TraceCall], _ run: Int, _ directory: URL, _ initial: DiskTree,
    _ candidates: @escaping ([Int]) -> [PowerCutCandidate]
  ) -> PowerCutSearch {
    // Reading many calls may take long.
    context.noteProgress()
    let path = directory.systemPath
    let recording = TraceReader.recording(
      of: calls, root: path.hasSuffix("/") ? String(path.dropLast()) : path, initial: initial,
      workingDirectory: FileManager.default.currentDirectoryPath
    ) { line in
      guard case .message(let message) = WorkerReply<TakeStepsTask.Message>(line: line), message.run == run
      else {
        return nil
      }
      return message.step
    }
    return PowerCutSearch(
      context: context, scenario: scenario, since: since, recording: recording, directory: directory,
      candidates: candidates)
  }
}

extension WorkerReply {
  /// Parses a line. Nil if it is not a reply.
  fileprivate init?(line: String) {
    guard let reply = try? JSONDecoder().decode(Self.self, from: Data(line.utf8)) else { return nil }
    self = reply
  }
}
