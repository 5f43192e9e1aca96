import StockroomCore

extension CheckContext {
  /// Does something with a child process, which has ended when this returns.
  ///
  /// What becomes of a process that was not meant to die, and what a task throws there, convicts the engine.
  func withChild<Result>(_ body: (ChildProcess) async throws -> Result) async throws -> Result {
    let child = try startChild()
    do {
      let result = try await judging { try await body(child) }
      child.kill()
      await child.waitUntilEnd()
      return result
    } catch {
      child.kill()
      await child.waitUntilEnd()
      throw error
    }
  }
}

/// Turns what a child process tells into a conviction.
@discardableResult
func judging<Result>(_ body: () async throws -> Result) async throws -> Result {
  do {
    return try await body()
  } catch let error as ChildError {
    throw Violation("in another process, \(error)", rule: error.rule)
  } catch let died as ChildProcess.Died {
    throw Violation("of itself, \(died)")
  }
}
