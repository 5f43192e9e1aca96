import StockroomCore

extension CheckContext {
  /// The given process, or a new one if it is nil, once it accepts requests. The engine is not responsible for the time
  /// that this takes.
  func readyWorker(_ worker: WorkerProcess? = nil) async throws -> WorkerProcess {
    let worker = try worker ?? startWorker()
    try await worker.waitUntilReady()
    noteProgress()
    return worker
  }

  /// Calls the body with a worker process, which has ended when this returns.
  ///
  /// Fails if the process dies unexpectedly, or if a task in it throws.
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

/// Turns an error of a worker process into a violation.
@discardableResult
func translatingWorkerErrors<Result>(_ body: () async throws -> Result) async throws -> Result {
  do {
    return try await body()
  } catch let error as WorkerError {
    throw Violation("in another process, \(error)", rule: error.rule)
  } catch let died as WorkerProcess.Died {
    throw Violation("without being killed by the check, \(died)")
  }
}
