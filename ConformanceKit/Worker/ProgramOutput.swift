import Foundation
import StockroomCore
import StockroomKitSupport

/// What a program wrote before it ended.
package struct ProgramOutput: Sendable {
  /// What it wrote to standard output.
  package let text: Data
  /// The end of what it wrote to standard error, and how it ended.
  package let ending: String

  /// Runs a program until it ends, and kills it if the task is cancelled.
  ///
  /// - Throws: `StorageError` if it cannot be started; `CancellationError`.
  package init(of command: [String]) async throws {
    let (events, continuation) = AsyncStream<SystemProcess.Event>.makeStream()
    let process = try SystemProcess(command) { event in
      continuation.yield(event)
      if case .ended = event { continuation.finish() }
    }
    process.closeInput()
    var (output, errors, ending) = (Data(), Data(), "")
    await withTaskCancellationHandler {
      for await event in events {
        switch event {
        case .output(let bytes): output += bytes
        case .errors(let bytes): errors = Data((errors + bytes).suffix(2_000))
        case .ended(let how): ending = "\(how)"
        }
      }
    } onCancel: {
      process.kill()
    }
    try Task.checkCancellation()
    text = output
    let said = String(decoding: errors, as: UTF8.self).inOneLine
    self.ending = said.isEmpty ? ending : "\(ending) after saying: \(said)"
  }
}
