import Foundation
import StockroomCore

/// Sends what the clock of the worker says.
struct ReadClock: WorkerTask {
  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Date) throws -> Void
  ) async throws { try send(Date()) }
}

/// A separate clock for a process, with `faketime` (https://github.com/wolfcw/libfaketime).
enum FakeClock {
  /// The command that starts a program with such a clock.
  ///
  /// Not the library alone: it changes the environment, beside which Swift looks for a program's arguments.
  ///
  /// - Throws: ``Skip`` where there is none, and where it cannot work.
  static func tool(hasThreadSanitizer: Bool = System.hasThreadSanitizer) throws -> [String] {
    #if !canImport(Darwin)
      // The sanitizer asks for the time while it allocates memory, and faketime allocates memory to answer.
      if hasThreadSanitizer {
        throw Skip(
          reason: "faketime cannot set the clock of a process with the thread sanitizer.")
      }
      let program = ["/usr/bin/faketime", "/usr/local/bin/faketime"].first {
        FileManager.default.isExecutableFile(atPath: $0)
      }
      guard let program else {
        throw Skip(reason: "Setting the clock of a process requires the program faketime.")
      }
      // What waits for a time to pass must not wait for the false one, and the times of files are what they are.
      return [
        "/usr/bin/env", "NO_FAKE_STAT=1", "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
        program, "-m", "--exclude-monotonic", "-f", "+0",
      ]
    #else
      throw Skip(reason: "The kit can set the clock of a process on Linux only.")
    #endif
  }

  /// The command that starts a program for which a minute passes in a fifth of a second.
  ///
  /// - Throws: ``Skip`` where there is none.
  static func fastTool() throws -> [String] {
    let program = try tool().first { $0.hasSuffix("/faketime") } ?? "faketime"
    return ["/usr/bin/env", "NO_FAKE_STAT=1", program, "-m", "-f", "+0 x300"]
  }

  /// Skips the check if the process, which ``fastTool()`` has started, has no fast clock: a program without dynamic libraries has not.
  static func requireFastClock(of worker: WorkerProcess) async throws {
    // A few milliseconds after it was started the process is seconds ahead. This one may take long to see the answer, which the next
    // answer is ahead of even more.
    for _ in 0..<3 {
      let time = try await worker.perform(ReadClock()).last
      if let time, time.timeIntervalSinceNow > 0.5 { return }
    }
    throw Skip(reason: "The clock of a process cannot be made fast here.")
  }

  /// Skips the check if the clock of this process, which ``tool(hasThreadSanitizer:)`` has started, cannot be set.
  static func requireSettableClock() throws {
    let start = Date()
    set(secondsFromNow: 3_600)
    guard Date().timeIntervalSince(start) > 3_000 else {
      throw Skip(reason: "The clock of a process cannot be set here.")
    }
    set(secondsFromNow: 0)
  }

  /// Removes what the tool leaves in the system's shared memory if it is killed. The process has ended, or has not been
  /// able to start.
  static func removeTraces(ofProcess identifier: Int32) {
    for name in ["faketime_shm_", "sem.faketime_sem_"] { unlink("/dev/shm/\(name)\(identifier)") }
  }

  /// Sets the clock of this process, if it is such a process.
  static func set(secondsFromNow offset: Int) {
    setenv("FAKETIME", offset < 0 ? "\(offset)" : "+\(offset)", 1)
  }
}
