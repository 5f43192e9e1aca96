import StockroomCore

extension CheckContext {
  /// The process, or a new one if there is none, once it takes requests: how long that takes is not up to the engine.
  func readyWorker(_ worker: WorkerProcess? = nil) async throws -> WorkerProcess {
    let worker = try worker ?? startWorker()
    try await worker.waitUntilReady()
    noteProgress()
    return worker
  }

  /// Does something with a worker process, which has ended when this returns.
  ///
  /// What becomes of a process that was not meant to die, and what a task throws there, fails.
  func withWorker<Result>(_ body: (WorkerProcess) async throws -> Result) async throws -> Result {
    let worker = try startWorker()
    do {
      let result = try await translatingWorkerErrors { try await body(worker) }
      worker.kill()
      await worker.waitUntilEnd()
      return result
    } catch {
      worker.kill()
      await worker.waitUntilEnd()
      throw error
    }
  }
}

/// Turns what a worker process reports into a violation.
@discardableResult
func translatingWorkerErrors<Result>(_ body: () async throws -> Result) async throws -> Result {
  do {
    return try await body()
  } catch let error as WorkerError {
    throw Violation("in another process, \(error)", rule: error.rule)
  } catch let died as WorkerProcess.Died {
    throw Violation("of itself, \(died)")
  }
}
