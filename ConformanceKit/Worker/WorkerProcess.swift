import Foundation
import StockroomCore
import StockroomKitSupport

/// A worker process that is running, or has ended.
final class WorkerProcess: Sendable {
  /// A process that ended in the middle of a task.
  struct Died: Error, CustomStringConvertible {
    let ending: SystemProcess.Ending
    /// The end of its output to standard error.
    let stderrTail: String

    var description: String {
      "the process \(ending)" + (stderrTail.isEmpty ? "" : " after writing to standard error: \(stderrTail)")
    }
  }

  /// The process is not a valid worker. This says nothing about the engine.
  struct ProtocolError: Error, CustomStringConvertible {
    let command: String
    let what: String

    var description: String {
      "the worker process \(command) \(what), so it does not seem to call "
        + "ConformanceWorker.serve(makeEngine:)"
    }
  }

  private let process: LineProcess
  private let isGreeted = MutexProtected(false)

  /// Starts a process.
  ///
  /// - Parameter tool: A program, with its arguments, that runs the worker.
  /// - Throws: `StorageError` with code `io` if there is no such program.
  init(_ worker: ConformanceWorker, under tool: [String] = []) throws {
    process = try LineProcess(tool + [worker.executable.systemPath] + worker.arguments)
  }

  /// The identifier of the process.
  var identifier: Int32 { process.identifier }

  /// Waits until the process accepts requests.
  ///
  /// - Throws: ``ProtocolError`` if it writes something else.
  func waitUntilReady() async throws {
    if isGreeted.withLock({ $0 }) { return }
    guard let line = await process.nextLine() else {
      try Task.checkCancellation()
      throw ProtocolError(
        command: process.command.joined(separator: " "), what: "\(await death()), before it accepted requests"
      )
    }
    guard line == Data(ConformanceWorker.greeting.utf8) else { throw protocolError(line) }
    isGreeted.withLock { $0 = true }
  }

  /// Starts a task in the process. The messages end when the task has ended. They throw ``WorkerError`` if the task
  /// threw, ``Died`` if the process ended first, and ``ProtocolError`` if it is not a ``ConformanceWorker``. One task
  /// at a time.
  func start<Work: WorkerTask>(_ task: Work) throws -> Messages<Work.Message> {
    process.send(try WorkerRequest(task: task).line)
    return Messages(process: self)
  }

  /// The messages of a process during a task.
  struct Messages<Message: Codable & Sendable>: AsyncSequence, AsyncIteratorProtocol, Sendable {
    fileprivate let process: WorkerProcess

    func makeAsyncIterator() -> Self { self }

    func next() async throws -> Message? {
      try await process.waitUntilReady()
      guard let line = await process.process.nextLine() else {
        // In a cancelled task, the lines end.
        try Task.checkCancellation()
        throw await process.death()
      }
      guard let reply = try? JSONDecoder().decode(WorkerReply<Message>.self, from: line) else {
        throw process.protocolError(line)
      }
      switch reply {
      case .message(let message): return message
      case .failed(let error): throw error
      case .skipped(let reason): throw Skip(reason: reason)
      case .done: return nil
      }
    }
  }

  /// Runs a task in the process and waits for its end. Returns the messages.
  @discardableResult
  func perform<Work: WorkerTask>(_ task: Work) async throws -> [Work.Message] {
    var messages: [Work.Message] = []
    for try await message in try start(task) { messages.append(message) }
    return messages
  }

  /// Kills the process at once; it cannot prevent that. Does nothing if it has ended.
  func kill() { process.kill() }

  /// Asks the process to end by closing its standard input.
  func closeInput() { process.closeInput() }

  /// Waits until the process has ended.
  @discardableResult
  func waitUntilEnd() async -> SystemProcess.Ending { await process.waitUntilEnd() }

  private func death() async -> Died {
    Died(ending: await waitUntilEnd(), stderrTail: process.stderrTail)
  }

  private func protocolError(_ line: Data) -> ProtocolError {
    let text = String(decoding: line.prefix(80), as: UTF8.self)
    return ProtocolError(
      command: process.command.joined(separator: " "), what: "wrote \(text.debugDescription)")
  }
}
