import Foundation
import StockroomCore

/// Opens the engine in a worker, on one state after the other.
final class PowerCutInspector {
  private let search: PowerCutSearch
  private var worker: WorkerProcess?

  init(_ search: PowerCutSearch) { self.search = search }

  deinit { worker?.kill() }

  /// The violation of the engine when it opens the state. Nil if there is none.
  func inspect(_ tree: DiskTree, _ candidates: [PowerCutCandidate]) async throws -> Violation? {
    try tree.layOut(in: search.directory)
    let task = InspectTask(
      directory: search.directory.appending(path: PowerCutRecorder.enginePath), scenario: search.scenario,
      candidates: candidates, capabilities: search.context.capabilities.rawValue, since: search.since)
    let worker = try await search.context.readyWorker(self.worker)
    self.worker = worker
    let usual = PowerCutSearch.timeout
    let timeout = max(usual, search.context.timeout(atMost: usual))
    let progress = CheckProgress()
    let result = await withStallTimeout(timeout, since: progress) {
      [context = search.context] () -> Result<[Violation], any Error> in
      do {
        var violations: [Violation] = []
        for try await message in try worker.start(task) {
          progress.note()
          context.noteProgress()
          if case .broken(let violation) = message { violations.append(violation) }
        }
        return .success(violations)
      } catch {
        return .failure(error)
      }
    }
    switch result {
    case .success(.success(let violations)): return violations.first
    case .success(.failure(let error)):
      self.worker = nil
      try Task.checkCancellation()
      if error is WorkerProcess.ProtocolError { throw error }
      return Violation(error)
    case .failure:
      worker.kill()
      self.worker = nil
      try Task.checkCancellation()
      return Violation(Violation("opening and reading the engine made no progress for \(timeout)"))
    }
  }
}
