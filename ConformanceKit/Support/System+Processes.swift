import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Suspending processes, and starting ones that inherit descriptors.

extension WorkerProcess {
  /// Suspends the process.
  func stop() { _ = Self.signal(identifier, SIGSTOP) }

  /// Lets the process continue.
  func resume() { _ = Self.signal(identifier, SIGCONT) }

  private static func signal(_ process: pid_t, _ signal: Int32) -> Int32 { systemKill(process, signal) }
}

/// An idle process that inherits every descriptor of this process without close-on-exec.
final class IdleProcess: Sendable {
  private let identifier: pid_t

  /// - Throws: ``Skip`` if it cannot be started.
  init() throws {
    #if os(Linux) || os(macOS)
      let arguments: [UnsafeMutablePointer<CChar>?] = [strdup("/bin/sleep"), strdup("600"), nil]
      defer { for text in arguments { free(text) } }
      var identifier: pid_t = 0
      let result = posix_spawn(&identifier, "/bin/sleep", nil, nil, arguments, [nil])
      guard result == 0 else {
        throw Skip(reason: "/bin/sleep could not be started: \(SystemError(result)).")
      }
      self.identifier = identifier
    #else
      throw Skip(reason: "A program cannot start another one on this system.")
    #endif
  }

  deinit {
    _ = systemKill(identifier, SIGKILL)
    var status: Int32 = 0
    while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
  }

  /// The inherited files below a directory. Empty if the system does not report them.
  func openFiles(in directory: URL) -> [String] {
    guard let resolved = realpath(directory.systemPath, nil) else { return [] }
    defer { free(resolved) }
    let (path, list) = (String(cString: resolved), "/proc/\(identifier)/fd")
    let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: list)) ?? []
    return descriptors.compactMap {
      try? FileManager.default.destinationOfSymbolicLink(atPath: "\(list)/\($0)")
    }.filter { $0.hasPrefix(path) }.sorted()
  }
}

private func systemKill(_ process: pid_t, _ signal: Int32) -> Int32 { kill(process, signal) }
