import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A child process that reads requests from standard input and writes answers to standard output, one per
/// line.
package final class LineProcess: Sendable {
  /// The program with its arguments.
  package let command: [String]
  private let process: SystemProcess
  private let transcript = Transcript()

  /// Starts a program with the environment of this process.
  ///
  /// - Throws: `StorageError` with code `io` if the program does not exist or cannot be started, `permissionDenied` if it
  ///   may not be executed, `unsupported` on platforms where a program cannot start others.
  package init(_ command: [String]) throws {
    self.command = command
    process = try SystemProcess(command) { [transcript] in transcript.add($0) }
  }

  deinit { process.kill() }

  /// The process identifier.
  package var identifier: Int32 { process.identifier }

  /// Sends a line, without waiting for the process to read it. Calls must not overlap.
  package func send(_ line: String) { process.send(Data((line + "\n").utf8)) }

  /// The next line of the process's standard output, without its line break. Nil once the process has ended,
  /// or if the task is cancelled. Text after the last line break is discarded.
  package func nextLine() async -> Data? { await transcript.nextLine() }

  /// Kills the process with a signal that it cannot catch. Does nothing if it has ended.
  package func kill() { process.kill() }

  /// Closes the process's standard input.
  package func closeInput() { process.closeInput() }

  /// Waits until the process has ended.
  @discardableResult
  package func waitUntilEnd() async -> SystemProcess.Ending { await transcript.ending.value }

  /// The last part of standard error, or the message of a trap, without the stack trace that may follow it.
  package var stderrTail: String { transcript.stderrTail }
}

/// The output of a process.
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
      // Reached only if the task is cancelled, which never happens here.
      return .exited(status: 0)
    }
  }

  /// Resumes the callers that wait for a process that was never started.
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

  /// Nil once the process has ended, or if the task is cancelled. Text after the last line break is
  /// discarded.
  func nextLine() async -> Data? {
    var iterator = lines.makeAsyncIterator()
    return await iterator.next()
  }

  /// The last part of standard error, or the message of a trap, without the stack trace that may follow it.
  var stderrTail: String {
    let text = String(decoding: errors.withLock { $0 }, as: UTF8.self)
    if let trap = text.range(of: "Fatal error: ", options: .backwards) {
      return String(text[trap.lowerBound...].prefix { !$0.isNewline }.prefix(600))
    }
    return text.suffix(600).split(whereSeparator: \.isNewline).joined(separator: " ")
  }
}

/// Assembles lines from the chunks in which they arrive.
private struct LineSplitter: Sendable {
  private var rest = Data()

  /// The lines that this chunk completes, without their line breaks. Costs O(length of the chunk and of the
  /// lines).
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
