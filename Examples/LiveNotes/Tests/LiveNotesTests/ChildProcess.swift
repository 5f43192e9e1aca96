import Foundation

#if canImport(Darwin)
  import Darwin
#else
  import Glibc
#endif

struct SystemFailure: Error, CustomStringConvertible {
  let description: String
  init(_ what: String, _ code: Int32 = errno) { description = "\(what): \(String(cString: strerror(code)))" }
}

/// Held while a program is started, and while a pipe is created and marked close-on-exec, so that no program inherits
/// the pipe.
private let spawning = NSLock()

/// A program that a test has started. Killed when this is released.
final class ChildProcess: @unchecked Sendable {
  // Safe to share: the lock protects the mutable state.
  let pid: pid_t
  private let lock = NSLock()
  private var status: Int32?

  /// Starts a program.
  ///
  /// - Parameter descriptors: The program's descriptors, each with the descriptor of this process that it duplicates.
  init(_ path: String, _ arguments: [String], descriptors: [Int32: Int32] = [:]) throws {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    // First duplicated to numbers that are not among the program's, since a descriptor can have the number that another
    // one is duplicated to.
    let spare = try descriptors.mapValues { ours in
      let copy = fcntl(ours, F_DUPFD_CLOEXEC, 10)
      guard copy >= 0 else { throw SystemFailure("No descriptor") }
      return copy
    }
    defer { for copy in spare.values { close(copy) } }
    for (theirs, ours) in spare { posix_spawn_file_actions_adddup2(&actions, ours, theirs) }
    var argv: [UnsafeMutablePointer<CChar>?] = ([path] + arguments).map { strdup($0) }
    defer { for argument in argv { free(argument) } }
    argv.append(nil)
    var pid: pid_t = 0
    let code = spawning.withLock { posix_spawn(&pid, path, &actions, nil, argv, environ) }
    guard code == 0 else { throw SystemFailure("Starting \(path) failed", code) }
    self.pid = pid
  }

  deinit { _ = end(by: SIGKILL) }

  /// Sends the signal and waits until the process has ended. Returns the exit code, or the negative number of the
  /// signal that ended it.
  @discardableResult
  func end(by signal: Int32) -> Int32 {
    lock.withLock {
      if let status { return status }
      kill(pid, signal)
      return waitUntilEnd()
    }
  }

  /// Waits until the process has ended. Returns the same as ``end(by:)``.
  @discardableResult
  func wait() -> Int32 { lock.withLock { status ?? waitUntilEnd() } }

  private func waitUntilEnd() -> Int32 {
    var result: Int32 = 0
    while waitpid(pid, &result, 0) < 0, errno == EINTR {}
    let signal = result & 0x7f
    let ending = signal == 0 ? (result >> 8) & 0xff : -signal
    status = ending
    return ending
  }
}

/// Runs work that blocks on a thread of its own, so that it does not delay other tests.
func onDedicatedThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value
{
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread { continuation.resume(with: Result { try work() }) }
  }
}

/// Both ends of a pipe, which child processes do not inherit unless they are passed to them.
struct Pipe {
  let reading: Int32
  let writing: Int32

  init() throws {
    var ends: [Int32] = [0, 0]
    try spawning.withLock {
      guard pipe(&ends) == 0 else { throw SystemFailure("No pipe") }
      for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    }
    (reading, writing) = (ends[0], ends[1])
  }
}

/// A temporary directory, removed when this is released.
final class TemporaryDirectory: Sendable {
  let path: String

  init() throws {
    var template = Array((NSTemporaryDirectory() + "/LiveNotes.XXXXXX").utf8CString)
    guard let path = mkdtemp(&template) else { throw SystemFailure("No directory") }
    self.path = String(cString: path)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }
}
