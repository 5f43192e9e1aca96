import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A process of the operating system, with its standard streams.
///
/// Replaces Foundation's `Process`, which raises SIGPIPE on a write to a process that has ended, reports the
/// end of a process only once all its descendants have ended, and is not available on every platform.
package final class SystemProcess: Sendable {
  /// How a process has ended.
  package enum Ending: Sendable, Hashable, CustomStringConvertible {
    case exited(status: Int32)
    case killed(signal: Int32)

    package var description: String {
      switch self {
      case .exited(let status): "exited with status \(status)"
      case .killed(let signal): "was ended by signal \(signal)"
      }
    }
  }

  /// An observable event of a process.
  package enum Event: Sendable {
    case output(Data)
    case errors(Data)
    case ended(Ending)
  }

  package let identifier: pid_t
  /// A socket, because a write to a closed socket can return an error instead of raising a signal. Nil after
  /// ``closeInput()``.
  private let input: MutexProtected<Descriptor?>
  /// Nil while the process is running.
  private let ending = MutexProtected<Ending?>(nil)

  /// Starts a program with the environment of this process.
  ///
  /// - Parameter receive: Called for each event, on a dedicated thread. The end is the last event.
  /// - Throws: `StorageError` with code `io`, `permissionDenied` if the program may not be executed, or `unsupported` on
  ///   platforms where a program cannot start others.
  package init(_ command: [String], receive: @escaping @Sendable (Event) -> Void) throws {
    #if os(Linux) || os(macOS)
      // Sockets for the output too: they can be created close-on-exec in one call, so no other process
      // inherits them.
      let (input, output, errors) = try (Descriptor.pair(), Descriptor.pair(), Descriptor.pair())
      let end = try Descriptor.pair()
      identifier = try Self.spawn(command, streams: [input.theirs, output.theirs, errors.theirs])
      self.input = MutexProtected(input.ours)
      // Descendants may keep the output streams open after the process has ended. So one thread waits for the end of the
      // process, and then shuts down its end of the socket pair `end`, which wakes the thread that reads the output.
      let outputs = Outputs(output: output.ours, errors: errors.ours, end: end.ours)
      Thread.detachNewThread { [self, signal = end.theirs] in
        waitUntilEnd()
        signal.shutDown()
      }
      Thread.detachNewThread { [self] in
        outputs.read(receive)
        receive(.ended(ending.withLock { $0 } ?? .exited(status: 0)))
      }
    #else
      throw StorageError(.unsupported, "A program cannot start another one on this system.")
    #endif
  }

  /// Writes to the process's standard input on a new thread, and returns immediately. Calls must not overlap, since
  /// their bytes could be interleaved. A write to a process that has ended is ignored; the end of its output reports it.
  package func send(_ bytes: Data) {
    guard let input = input.withLock({ $0 }) else { return }
    Thread.detachNewThread {
      bytes.withUnsafeBytes { bytes in
        var rest = bytes[...]
        while !rest.isEmpty {
          let count = systemSend(input.number, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
          if count < 0, errno != EINTR { return }
          rest = rest.dropFirst(max(0, count))
        }
      }
    }
  }

  /// Closes the process's standard input.
  package func closeInput() {
    let input = input.withLock { $0.take() }
    input?.shutDown()
  }

  /// Kills the process and its process group with a signal that they cannot catch. Does nothing if the
  /// process has ended.
  package func kill() {
    // The negative identifier is the process group. It cannot be reused before the process has been waited
    // for.
    ending.withLock { if $0 == nil { _ = systemKill(-identifier, SIGKILL) } }
    // Descendants outside the group survive, and may be reading requests.
    closeInput()
  }

  private func waitUntilEnd() {
    var information = siginfo_t()
    while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    ending.withLock { ending in
      var status: Int32 = 0
      while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
      let signal = status & 0x7F
      ending = signal == 0 ? .exited(status: status >> 8 & 0xFF) : .killed(signal: signal)
    }
  }
}

/// The output streams of a process.
private struct Outputs: Sendable {
  let output: Descriptor
  let errors: Descriptor
  /// Closed when the process ends.
  let end: Descriptor

  /// Reads until the process has ended and all its output has been read.
  func read(_ receive: (SystemProcess.Event) -> Void) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var hasEnded = false
    // The streams that are still open.
    var open = [output, errors]
    while !open.isEmpty || !hasEnded {
      var waiting = (open + [end]).map { pollfd(fd: $0.number, events: Int16(POLLIN), revents: 0) }
      // Once the process has ended, only what is already buffered remains to be read.
      guard poll(&waiting, nfds_t(waiting.count), hasEnded ? 0 : -1) >= 0 || errno == EINTR else { return }
      let ready = zip(open, waiting).filter { $1.revents != 0 }.map(\.0)
      if ready.isEmpty, hasEnded { return }
      hasEnded = waiting[open.count].revents != 0
      for source in ready {
        let count = systemRead(source.number, &buffer, buffer.count)
        if count > 0 {
          let bytes = Data(buffer[..<count])
          receive(source === output ? .output(bytes) : .errors(bytes))
        } else if count == 0 || errno != EINTR {
          open.removeAll { $0 === source }
        }
      }
    }
  }
}

// MARK: - Starting

extension SystemProcess {
  /// The open descriptors of this process; nil where the system does not list them.
  package static var openDescriptors: [Int32]? {
    #if canImport(Darwin)
      return nil
    #else
      // Also nil if /proc is not mounted, or if no descriptor is left to list them with.
      let names = try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
      // Excludes the descriptor of the listing itself, which is closed by now.
      return names?.compactMap { Int32($0) }.filter { fcntl($0, F_GETFD) >= 0 }
    #endif
  }
}

#if os(Linux) || os(macOS)
  extension SystemProcess {
    private static func spawn(_ command: [String], streams: [Descriptor]) throws -> pid_t {
      #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        var attributes: posix_spawnattr_t?
        let flags =
          POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_CLOEXEC_DEFAULT
      #else
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP
      #endif
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      for (number, stream) in streams.enumerated() {
        posix_spawn_file_actions_adddup2(&actions, stream.number, Int32(number))
      }
      // The child must not inherit the files and locks of an engine, even if the engine has not marked them
      // close-on-exec.
      for descriptor in openDescriptors ?? [] where descriptor > 2 {
        posix_spawn_file_actions_addclose(&actions, descriptor)
      }

      posix_spawnattr_init(&attributes)
      defer { posix_spawnattr_destroy(&attributes) }
      var signals = sigset_t()
      sigemptyset(&signals)
      posix_spawnattr_setsigmask(&attributes, &signals)
      // The child does not inherit ignored signals.
      for number in [SIGPIPE, SIGINT, SIGTERM, SIGHUP] { sigaddset(&signals, number) }
      posix_spawnattr_setsigdefault(&attributes, &signals)
      // A tool may run the program as a child process. A kill of the tool must reach both.
      posix_spawnattr_setpgroup(&attributes, 0)
      posix_spawnattr_setflags(&attributes, Int16(flags))

      let arguments = command.map { strdup($0) } + [nil]
      let environment = environment.map { strdup("\($0)=\($1)") } + [nil]
      defer { for text in arguments + environment { free(text) } }
      var identifier: pid_t = 0
      let result = posix_spawn(&identifier, command[0], &actions, &attributes, arguments, environment)
      guard result == 0 else {
        throw StorageError.posix(
          result, "The process \(command.joined(separator: " ")) could not be started")
      }
      return identifier
    }

    /// The environment of this process, with backtraces disabled: a test may expect a trap, and a backtrace
    /// takes seconds.
    private static var environment: [String: String] {
      ProcessInfo.processInfo.environment.merging(["SWIFT_BACKTRACE": "enable=no"]) { ours, _ in ours }
    }
  }
#endif

/// A descriptor that is closed with the last reference to it, and that no child process inherits.
private final class Descriptor: Sendable {
  let number: Int32

  private init(_ number: Int32) {
    self.number = number
    _ = fcntl(number, F_SETFD, FD_CLOEXEC)
    #if canImport(Darwin)
      var isOn: Int32 = 1
      setsockopt(number, SOL_SOCKET, SO_NOSIGPIPE, &isOn, socklen_t(MemoryLayout<Int32>.size))
    #endif
  }

  deinit { close(number) }

  /// Signals end of file to the reader at the other end.
  func shutDown() { shutdown(number, Int32(SHUT_WR)) }

  /// Both ends of a socket pair.
  static func pair() throws -> (ours: Descriptor, theirs: Descriptor) {
    #if canImport(Darwin)
      let type = SOCK_STREAM
    #elseif canImport(Musl)
      let type = SOCK_STREAM | SOCK_CLOEXEC
    #else
      let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    #endif
    var numbers: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, type, 0, &numbers) == 0 else {
      throw StorageError.posix(errno, "Creating a socket failed")
    }
    return (Descriptor(numbers[0]), Descriptor(numbers[1]))
  }
}

#if canImport(Darwin)
  private let noSignal: Int32 = 0
#else
  private let noSignal = Int32(MSG_NOSIGNAL)
#endif

private func systemKill(_ process: pid_t, _ signal: Int32) -> Int32 { kill(process, signal) }

private func systemSend(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  send(descriptor, bytes, count, noSignal)
}

private func systemRead(_ descriptor: Int32, _ buffer: inout [UInt8], _ count: Int) -> Int {
  read(descriptor, &buffer, count)
}
