import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A child process that is running, or has ended.
final class ChildProcess: Sendable {
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
    let lastWords: String

    var description: String {
      "the process \(ending)" + (lastWords.isEmpty ? "" : " after saying: \(lastWords)")
    }
  }

  private let process: Process
  private let input = Pipe()
  private let lines: AsyncStream<String>
  private let ending: Task<Ending, Never>
  private let errors: URL

  /// Starts a process.
  ///
  /// - Parameters:
  ///   - root: A directory for what the process writes to standard error.
  ///   - tool: A program, with its arguments, that runs the child instead of the system itself.
  init(_ child: ConformanceChild, in root: URL, under tool: [String] = []) throws {
    errors = root.appending(path: "child-\(UUID().uuidString).txt")
    try Data().write(to: errors)
    let command = tool + [child.executable.systemPath] + child.arguments
    let process = Process()
    let output = Pipe()
    process.executableURL = URL(filePath: command[0])
    process.arguments = Array(command.dropFirst())
    process.standardInput = input
    process.standardOutput = output
    process.standardError = try FileHandle(forWritingTo: errors)
    let (endings, ended) = AsyncStream<Ending>.makeStream()
    process.terminationHandler = { process in
      let status = process.terminationStatus
      ended.yield(process.terminationReason == .exit ? .exited(status: status) : .killed(signal: status))
      ended.finish()
    }
    do {
      try process.run()
    } catch {
      throw StorageError(
        .io, "The child process \(command.joined(separator: " ")) could not be started.", underlying: error)
    }
    self.process = process
    lines = output.fileHandleForReading.lineStream()
    ending = Task {
      for await ending in endings { return ending }
      return .exited(status: 0)
    }
  }

  deinit { kill() }

  /// The identifier of the process.
  var identifier: Int32 { process.processIdentifier }

  /// Has the process do something. The stream ends when it has been done; it throws ``ChildError`` if the task threw
  /// that, and ``Died`` if the process ended first. One task at a time.
  func start<Work: ChildTask>(_ task: Work) throws -> AsyncThrowingStream<Work.Message, any Error> {
    let request = try ChildRequest(task: task).line
    // A process that has ended cannot be written to. The end of its output says so.
    try? input.fileHandleForWriting.write(contentsOf: Data((request + "\n").utf8))
    var iterator = lines.makeAsyncIterator()
    return AsyncThrowingStream { [self] in
      guard let line = await iterator.next() else { throw await death() }
      switch try JSONDecoder().decode(ChildReply<Work.Message>.self, from: Data(line.utf8)) {
      case .message(let message): return message
      case .failed(let error): throw error
      case .done: return nil
      }
    }
  }

  /// Has the process do something and waits until it has been done. Gives the messages.
  @discardableResult
  func perform<Work: ChildTask>(_ task: Work) async throws -> [Work.Message] {
    var messages: [Work.Message] = []
    for try await message in try start(task) { messages.append(message) }
    return messages
  }

  /// Kills the process at once, as nothing inside it can prevent. Does nothing if it has ended.
  func kill() {
    if process.isRunning { _ = systemKill(process.processIdentifier, SIGKILL) }
  }

  /// Asks the process to end by closing its standard input.
  func hangUp() throws { try input.fileHandleForWriting.close() }

  /// Waits until the process has ended.
  @discardableResult
  func waitUntilEnd() async -> Ending { await ending.value }

  private func death() async -> Died {
    let ending = await waitUntilEnd()
    let words = (try? String(contentsOf: errors, encoding: .utf8)) ?? ""
    return Died(ending: ending, lastWords: String(words.suffix(600)))
  }
}

private func systemKill(_ process: Int32, _ signal: Int32) -> Int32 { kill(process, signal) }

extension FileHandle {
  /// The lines that are read from here, by a thread that waits for them. What follows the last line break is no line.
  fileprivate func lineStream() -> AsyncStream<String> {
    let (stream, continuation) = AsyncStream<String>.makeStream()
    Thread.detachNewThread { [self] in
      var rest = Data()
      // An error ends the lines, as the end of the process does, which is what can go wrong here.
      while let more = try? read(upToCount: 65_536), !more.isEmpty {
        rest += more
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
          continuation.yield(String(decoding: rest[rest.startIndex..<end], as: UTF8.self))
          rest.removeSubrange(rest.startIndex...end)
        }
      }
      continuation.finish()
    }
    return stream
  }
}
