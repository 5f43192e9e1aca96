import Foundation
import StockroomCore

/// The output of a program that has ended.
package struct ProgramOutput: Sendable {
  /// The bytes of standard output.
  package private(set) var output = Data()
  /// The bytes of standard error.
  package private(set) var errors = Data()
  /// How the program ended.
  package private(set) var ending = SystemProcess.Ending.exited(status: 0)

  /// Standard output as text.
  package var text: String { String(decoding: output, as: UTF8.self) }
  /// Standard error as text.
  package var errorText: String { String(decoding: errors, as: UTF8.self) }

  package var isSuccess: Bool { ending == .exited(status: 0) }

  /// A clause that says how the program ended, with the last part of standard error.
  package var explanation: String {
    let said = String(decoding: errors.suffix(2_000), as: UTF8.self)
      .split(whereSeparator: \.isNewline).joined(separator: " ")
    return said.isEmpty ? "\(ending)" : "\(ending) after saying: \(said)"
  }

  /// Runs a program until it ends. Kills it if the task is cancelled.
  ///
  /// - Parameters:
  ///   - command: The path of the program and its arguments.
  ///   - directory: The working directory; nil for that of this process.
  /// - Throws: `StorageError` if the program cannot be started; `CancellationError`.
  package init(of command: [String], in directory: URL? = nil) async throws {
    let (events, continuation) = AsyncStream<SystemProcess.Event>.makeStream()
    let process = try SystemProcess(Self.command(command, in: directory)) { event in
      continuation.yield(event)
      if case .ended = event { continuation.finish() }
    }
    process.closeInput()
    self.init()
    await withTaskCancellationHandler {
      for await event in events { add(event) }
    } onCancel: {
      process.kill()
    }
    try Task.checkCancellation()
  }

  /// Runs a program until it ends. Blocks the thread.
  ///
  /// - Throws: `StorageError` if the program cannot be started.
  package init(waitingFor command: [String]) throws {
    let result = MutexProtected(ProgramOutput())
    let hasEnded = DispatchSemaphore(value: 0)
    let process = try SystemProcess(command) { event in
      result.withLock { $0.add(event) }
      if case .ended = event { hasEnded.signal() }
    }
    process.closeInput()
    hasEnded.wait()
    self = result.withLock { $0 }
  }

  private init() {}

  private mutating func add(_ event: SystemProcess.Event) {
    switch event {
    case .output(let bytes): output += bytes
    case .errors(let bytes): errors += bytes
    case .ended(let ending): self.ending = ending
    }
  }

  private static func command(_ command: [String], in directory: URL?) -> [String] {
    directory.map { ["/bin/sh", "-c", #"cd "$0" && exec "$@""#, $0.path] + command } ?? command
  }
}
