import Foundation
import StockroomCore
import StockroomKitSupport

/// A message of a ``CheckTask``.
enum CheckMessage: Codable, Sendable {
  /// The next step, which the parent process reports if this process dies during it.
  case step(String)
  /// The engine breaks the rule that the violation names, or the check's rule if it names none.
  case broken(Violation)
  /// The check itself failed.
  case checkFailed(String)
}

/// A check, or a part of one, that may crash its process.
protocol CheckTask: WorkerTask where Message == CheckMessage {
  /// Runs the check. Throws ``Violation``, ``CallFailure`` or ``Skip`` like the body of a check.
  ///
  /// - Parameter note: Reports the next step, as a clause after "during".
  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws
}

extension CheckTask {
  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (CheckMessage) throws -> Void
  ) async throws {
    do {
      try await check(
        makeEngine: { place in
          do { return try await makeEngine(place) } catch {
            throw CallFailure(call: "opening the engine", error: error)
          }
        }, note: { try send(.step($0)) })
    } catch let violation as Violation {
      try send(.broken(violation))
    } catch let failure as CallFailure {
      try send(.broken(Violation(failure.description)))
    } catch let skip as Skip {
      throw skip
    } catch let lost as ParentDisconnected {
      throw lost
    } catch {
      try send(.checkFailed(String(describing: error)))
    }
  }
}

/// A failure of the check itself, in a worker process.
struct CheckFailure: Error, CustomStringConvertible {
  let description: String
}

/// The process did not finish its task.
struct WorkerStalled: Error {
  let step: String
}

/// The latest step of a process, as a clause after "during".
private final class LatestStep: Sendable {
  private let text = MutexProtected("the beginning")
  private let progress: [CheckProgress]

  /// - Parameter progress: Each of these records every step.
  init(_ progress: CheckProgress...) { self.progress = progress }

  var clause: String { text.withLock { $0 } }

  func begin(_ clause: String) {
    for progress in progress { progress.note() }
    text.withLock { $0 = clause }
  }
}

extension CheckContext {
  /// Runs the check in a worker process, or in this process if there is no worker.
  func check(_ task: some CheckTask) async throws {
    let worker: WorkerProcess
    do {
      worker = try startWorker()
    } catch is Skip {
      return try await task.check(
        makeEngine: { try await self.openUnregistered($0) }, note: { _ in self.noteProgress() })
    }
    try await check(task, in: worker)
    worker.kill()
  }

  /// Runs the check in a worker process. It is a violation if the process ends before the task.
  func check(_ task: some CheckTask, in worker: WorkerProcess) async throws {
    try await worker.result(of: task, step: LatestStep(progress))
  }

  /// Runs the check in a worker process, which is killed if it starts no new step within the limit.
  ///
  /// - Throws: Also ``WorkerStalled``.
  func check(_ task: some CheckTask, in worker: WorkerProcess, limit: Duration) async throws {
    let lastStep = CheckProgress()
    let step = LatestStep(progress, lastStep)
    let outcome = await withStallTimeout(limit, since: lastStep) { () -> Result<Void, any Error> in
      do {
        return .success(try await worker.result(of: task, step: step))
      } catch {
        return .failure(error)
      }
    }
    switch outcome {
    case .success(let result): try result.get()
    case .failure:
      worker.kill()
      throw WorkerStalled(step: step.clause)
    }
  }
}

extension WorkerProcess {
  fileprivate func result(of task: some CheckTask, step: LatestStep) async throws {
    var result: (any Error)?
    do {
      for try await message in try start(task) {
        switch message {
        case .step(let next): step.begin(next)
        case .broken(let violation): result = violation
        case .checkFailed(let reason): result = CheckFailure(description: "in a worker process, \(reason)")
        }
      }
    } catch let death as Died {
      throw Violation("during \(step.clause) \(death)")
    } catch let error as WorkerError {
      throw Violation("during \(step.clause) \(error)")
    }
    if let result { throw result }
  }
}
