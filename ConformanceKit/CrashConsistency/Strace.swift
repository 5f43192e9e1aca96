import Foundation
import StockroomCore

/// The program that records the system calls of an engine: https://strace.io
struct Strace {
  private let path: String

  /// The installed program.
  ///
  /// - Throws: ``Skip`` if none is installed, or the system does not support it.
  init() throws {
    #if !canImport(Darwin)
      let directories = (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":")
      let found = directories.map { "\($0)/strace" }.first(where: FileManager.default.isExecutableFile)
      guard let found else {
        throw Skip(
          reason:
            "The file operations of the engine are recorded with strace, which is not installed (on Debian: "
            + "apt-get install strace).")
      }
      path = found
    #else
      throw Skip(reason: "The file operations of an engine can be recorded on Linux only.")
    #endif
  }

  /// Has a worker perform tasks, one after the other, and returns the worker's messages and its system calls.
  ///
  /// - Parameter calls: The names of the system calls to record.
  func record<Work: WorkerTask>(
    _ tasks: [Work], calls: [String] = DiskRecording.calls, in context: CheckContext
  ) async throws -> (messages: [Work.Message], calls: [TraceCall]) {
    let file = context.root.appending(path: "trace-\(UUID().uuidString)")
    let worker = try context.startWorker(under: command(recording: calls, to: file))
    var messages: [Work.Message] = []
    do {
      try await translatingWorkerErrors {
        for task in tasks {
          for try await message in try worker.start(task) {
            messages.append(message)
            context.noteProgress()
          }
        }
      }
    } catch {
      // Nothing was recorded, which is not the engine's fault.
      let size = try? FileManager.default.attributesOfItem(atPath: file.systemPath)[.size] as? Int
      if size ?? 0 == 0 {
        throw Skip(reason: "strace cannot follow a process here: \(error).")
      }
      throw error
    }
    worker.closeInput()
    await worker.waitUntilEnd()
    let recorded = TraceText.calls(in: try Data(contentsOf: file, options: .alwaysMapped))
    try FileManager.default.removeItem(at: file)
    return (messages, recorded)
  }

  private func command(recording calls: [String], to file: URL) -> [String] {
    // The question marks allow calls that a system does not have.
    let calls = calls.map { "?" + $0 }.joined(separator: ",")
    return [
      path, "-f", "-y", "-xx", "-qq", "-s", "\(8 << 20)", "--seccomp-bpf", "-e", "signal=none", "-e",
      "trace=\(calls)", "-o", file.systemPath,
    ]
  }
}
