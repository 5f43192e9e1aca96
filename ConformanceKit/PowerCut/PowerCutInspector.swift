import Foundation
import StockroomCore

/// Opens the engine in a child, one state after the other.
final class PowerCutInspector {
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
