import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A worker process that is running, or has ended.
final class WorkerProcess: Sendable {
  /// How a process has ended.
  enum Ending: Sendable, Hashable, CustomStringConvertible {
    case exited(status: Int32)
    case killed(signal: Int32)

    var description: String {
      switch self {
      case .exited(let status): "exited with status \(status)"
      case .killed(let signal): "was ended by signal \(signal)"
      }
    }
  }

  /// A process that ended in the middle of a task.
  struct Died: Error, CustomStringConvertible {
    let ending: Ending
    /// The end of what it wrote to standard error.
    let stderrTail: String

    var description: String {
      "the process \(ending)" + (stderrTail.isEmpty ? "" : " after saying: \(stderrTail)")
    }
  }

  /// A process that is not what a suite should be given. It says nothing about the engine.
  struct ProtocolError: Error, CustomStringConvertible {
    let command: String
    let what: String

    var description: String {
      "the worker process \(command) \(what), so it does not call ConformanceWorker.serve(makeEngine:)"
    }
  }

  private let command: [String]
  private let process: SystemProcess
  private let transcript = Transcript()
  private let isGreeted = MutexProtected(false)

  /// Starts a process.
  ///
  /// - Parameter tool: A program, with its arguments, that runs the worker instead of the system itself.
  /// - Throws: `StorageError` with code `io` if there is no such program.
  init(_ worker: ConformanceWorker, under tool: [String] = []) throws {
    command = tool + [worker.executable.systemPath] + worker.arguments
    process = try SystemProcess(command) { [transcript] in transcript.add($0) }
  }

  deinit { process.kill() }

  /// The identifier of the process.
  var identifier: Int32 { process.identifier }

  /// Waits until the process takes requests.
  ///
  /// - Throws: ``ProtocolError`` if it does something else.
  func waitUntilReady() async throws {
    if isGreeted.withLock({ $0 }) { return }
    guard let line = await transcript.nextLine() else {
      try Task.checkCancellation()
      throw ProtocolError(
        command: command.joined(separator: " "), what: "\(await death()), before it took requests")
    }
    guard line == Data(ConformanceWorker.greeting.utf8) else { throw protocolError(line) }
    isGreeted.withLock { $0 = true }
  }

  /// Has the process do something. The messages end when it has been done; they throw ``WorkerError`` if the task threw,
  /// ``Died`` if the process ended first, and ``ProtocolError`` if it is no ``ConformanceWorker``. One task at a time.
  func start<Work: WorkerTask>(_ task: Work) throws -> Messages<Work.Message> {
    process.send(Data((try WorkerRequest(task: task).line + "\n").utf8))
    return Messages(process: self)
  }

  /// What comes from a process while it does something.
  struct Messages<Message: Codable & Sendable>: AsyncSequence, AsyncIteratorProtocol, Sendable {
    fileprivate let process: WorkerProcess

    func makeAsyncIterator() -> Self { self }

    func next() async throws -> Message? {
      try await process.waitUntilReady()
      guard let line = await process.transcript.nextLine() else {
        // For a task that is cancelled the lines end.
        try Task.checkCancellation()
        throw await process.death()
      }
      guard let reply = try? JSONDecoder().decode(WorkerReply<Message>.self, from: line) else {
        throw process.protocolError(line)
      }
      switch reply {
      case .message(let message): return message
      case .failed(let error): throw error
      case .done: return nil
      }
    }
  }

  /// Has the process do something and waits until it has been done. Gives the messages.
  @discardableResult
  func perform<Work: WorkerTask>(_ task: Work) async throws -> [Work.Message] {
    var messages: [Work.Message] = []
    for try await message in try start(task) { messages.append(message) }
    return messages
  }

  /// Kills the process at once, as nothing inside it can prevent. Does nothing if it has ended.
  func kill() { process.kill() }

  /// Asks the process to end by closing its standard input.
  func closeInput() { process.closeInput() }

  /// Waits until the process has ended.
  @discardableResult
  func waitUntilEnd() async -> Ending { await transcript.ending.value }

  private func death() async -> Died {
    Died(ending: await waitUntilEnd(), stderrTail: transcript.stderrTail)
  }

  private func protocolError(_ line: Data) -> ProtocolError {
    let text = String(decoding: line.prefix(80), as: UTF8.self)
    return ProtocolError(command: command.joined(separator: " "), what: "wrote \(text.debugDescription)")
  }
}

/// What has come from a process.
private final class Transcript: Sendable {
  let ending: Task<WorkerProcess.Ending, Never>

  private let lines: AsyncStream<Data>
  private let newLines: AsyncStream<Data>.Continuation
  private let ended: AsyncStream<WorkerProcess.Ending>.Continuation
  private let output = MutexProtected(LineSplitter())
  private let errors = MutexProtected(Data())

  init() {
    (lines, newLines) = AsyncStream.makeStream()
    let (endings, ended) = AsyncStream<WorkerProcess.Ending>.makeStream()
    self.ended = ended
    ending = Task {
      for await ending in endings { return ending }
      // Only a task that is cancelled gets here, and nobody cancels this one.
      return .exited(status: 0)
    }
  }

  /// Ends the waiting for a process that was never started.
  deinit { ended.finish() }

  func add(_ event: SystemProcess.Event) {
    switch event {
    case .output(let bytes):
      for line in output.withLock({ $0.add(bytes) }) { newLines.yield(line) }
    case .errors(let bytes):
      errors.withLock { $0 = Data(($0 + bytes).suffix(16_384)) }
    case .ended(let ending):
      ended.yield(ending)
      newLines.finish()
    }
  }

  /// Nil after the end of the process, and if the task is cancelled. What follows the last line break is no line.
  func nextLine() async -> Data? {
    var iterator = lines.makeAsyncIterator()
    return await iterator.next()
  }

  /// The end of what came through standard error, or the message of a trap, which a trace of the stack may follow.
  var stderrTail: String {
    let text = String(decoding: errors.withLock { $0 }, as: UTF8.self)
    if let trap = text.range(of: "Fatal error: ", options: .backwards) {
      return String(text[trap.lowerBound...].prefix { !$0.isNewline }.prefix(600))
    }
    return text.suffix(600).split(whereSeparator: \.isNewline).joined(separator: " ")
  }
}

/// Puts lines together from the chunks in which they come.
private struct LineSplitter: Sendable {
  private var rest = Data()

  /// The lines that are complete with this chunk, without their line breaks. Costs the length of the chunk and the lines.
  mutating func add(_ chunk: Data) -> [Data] {
    chunk.withUnsafeBytes { chunk in
      var lines: [Data] = []
      var remaining = chunk[...]
      while let end = remaining.offsetOfLineBreak {
        lines.append(rest + Data(remaining.prefix(end)))
        rest = Data()
        remaining = remaining.dropFirst(end + 1)
      }
      rest += Data(remaining)
      return lines
    }
  }
}

extension Slice<UnsafeRawBufferPointer> {
  fileprivate var offsetOfLineBreak: Int? {
    let bytes = UnsafeRawBufferPointer(rebasing: self)
    guard let start = bytes.baseAddress, let found = memchr(start, Int32(UInt8(ascii: "\n")), bytes.count)
    else { return nil }
    return UnsafeRawPointer(found) - start
  }
}
