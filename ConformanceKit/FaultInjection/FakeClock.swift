import Foundation
import StockroomCore

/// Sends the time of the worker's clock.
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
  /// Preloading the library alone is not enough: it changes the environment, and Swift finds a program's arguments in
  /// the memory next to it.
  ///
  /// - Throws: ``Skip`` if it is not installed or cannot work here.
  static func tool(hasThreadSanitizer: Bool = System.hasThreadSanitizer) throws -> [String] {
    #if !canImport(Darwin)
      // The sanitizer reads the clock while it allocates memory, and faketime allocates memory to return the time.
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
      // Timers do not use the fake clock, and the times of files are not changed.
      return [
        "/usr/bin/env", "NO_FAKE_STAT=1", "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
        program, "-m", "--exclude-monotonic", "-f", "+0",
      ]
    #else
      throw Skip(reason: "The kit can set the clock of a process on Linux only.")
    #endif
  }

  /// The command that starts a program for which a minute takes a fifth of a second.
  ///
  /// - Throws: ``Skip`` if it is not installed.
  static func fastTool() throws -> [String] {
    let program = try tool().first { $0.hasSuffix("/faketime") } ?? "faketime"
    return ["/usr/bin/env", "NO_FAKE_STAT=1", program, "-m", "-f", "+0 x300"]
  }

  /// Skips the check if the process, which ``fastTool()`` started, has no fast clock. That happens for programs without
  /// dynamic libraries.
  static func requireFastClock(of worker: WorkerProcess) async throws {
    // A few milliseconds after its start, the clock of the process is seconds ahead. This process may receive the first
    // answer late. In the next answer, the clock is even further ahead.
    for _ in 0..<3 {
      let time = try await worker.perform(ReadClock()).last
      if let time, time.timeIntervalSinceNow > 0.5 { return }
    }
    throw Skip(reason: "The clock of a process cannot be made fast here.")
  }

  /// Skips the check if the clock of this process, which ``tool(hasThreadSanitizer:)`` started, cannot be set.
  static func requireSettableClock() throws {
    let start = Date()
    set(secondsFromNow: 3_600)
    guard Date().timeIntervalSince(start) > 3_000 else {
      throw Skip(reason: "The clock of a process cannot be set here.")
    }
    set(secondsFromNow: 0)
  }

  /// Removes the objects that the tool leaves in shared memory if it is killed. The process must have ended or have
  /// failed to start.
  static func removeTraces(ofProcess identifier: Int32) {
    for name in ["faketime_shm_", "sem.faketime_sem_"] { unlink("/dev/shm/\(name)\(identifier)") }
  }

  /// Sets the clock of this process, if it has a fake clock.
  static func set(secondsFromNow offset: Int) {
    setenv("FAKETIME", offset < 0 ? "\(offset)" : "+\(offset)", 1)
  }
}
