import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A child process, running or ended, that reads requests from standard input and writes answers to standard output, a line each.
package final class LineProcess: Sendable {
  /// The program with its arguments.
  package let command: [String]
  private let process: SystemProcess
  private let transcript = Transcript()

  /// Starts a program in the environment of this process.
  ///
  /// - Throws: `StorageError` with code `io` if there is no such program; `unsupported` where programs cannot start others.
  package init(_ command: [String]) throws {
    self.command = command
    process = try SystemProcess(command) { [transcript] in transcript.add($0) }
  }

  deinit { process.kill() }

  /// The identifier of the process.
  package var identifier: Int32 { process.identifier }

  /// Sends a line, without waiting until it is read. One at a time.
  package func send(_ line: String) { process.send(Data((line + "\n").utf8)) }

  /// The next line that the process has written to its standard output, without its end. Nil after the end of the process, and
  /// if the task is cancelled. What follows the last line break is no line.
  package func nextLine() async -> Data? { await transcript.nextLine() }

  /// Kills the process at once, as nothing inside it can prevent. Does nothing if it has ended.
  package func kill() { process.kill() }

  /// Ends the process's standard input.
  package func closeInput() { process.closeInput() }

  /// Waits until the process has ended.
  @discardableResult
  package func waitUntilEnd() async -> SystemProcess.Ending { await transcript.ending.value }

  /// The end of what came through standard error, or the message of a trap, which a trace of the stack may follow.
  package var stderrTail: String { transcript.stderrTail }
}

/// What has come from a process.
private final class Transcript: Sendable {
  let ending: Task<SystemProcess.Ending, Never>

  private let lines: AsyncStream<Data>
  private let newLines: AsyncStream<Data>.Continuation
  private let ended: AsyncStream<SystemProcess.Ending>.Continuation
  private let output = MutexProtected(LineSplitter())
  private let errors = MutexProtected(Data())

  init() {
    (lines, newLines) = AsyncStream.makeStream()
    let (endings, ended) = AsyncStream<SystemProcess.Ending>.makeStream()
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
