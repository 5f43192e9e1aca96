import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Intercepts the system calls that an engine in this process makes on its files, and makes one of them fail.
///
/// Must only be used in a worker process, because the filter stays until the process ends.
final class SystemCallInterceptor: Sendable {
  /// The system calls that an engine has made.
  struct Observation: Sendable {
    /// How many calls of each kind there have been.
    var counts: [SystemCall: Int] = [:]
    /// The file of the call that failed, such as `"log"`. Nil if the call has not occurred.
    var failedFile: String?
  }

  private struct State: Sendable {
    /// Part of the path of every file to intercept. Nil while none is.
    var marker: [UInt8]?
    var fault: SystemFault?
    var observation = Observation()
    /// The path of the file of the first call that failed.
    var failedPath: [UInt8] = []
    /// The call that transfers the rest after a partial transfer. It transfers only half of the rest, because an engine
    /// may assume that a second call always completes the transfer.
    var continuation: (call: SystemCall, path: [UInt8], count: UInt64)?
    /// Nil if pages whose sync failed are kept.
    var unsynced: UnsyncedPages?

    /// How the call with this number, on the file at this path, fails. Nil if it succeeds.
    func failure(of call: SystemCall, _ number: Int, _ path: [UInt8]) -> SystemFault.Failure? {
      guard let fault else { return nil }
      if fault.call == call, fault.number == number { return fault.failure }
      guard fault.persists, observation.failedFile != nil else { return nil }
      let goesOn = fault.call.isRead ? call.isRead && path == failedPath : call.isWrite
      return goesOn ? .inputOutput : nil
    }

    /// Whether the call is the ``continuation``. There is at most one.
    mutating func takeContinuation(_ call: SystemCall, _ path: [UInt8], _ arguments: [UInt64]) -> Bool {
      guard fault != nil, let next = continuation, next.call == call, next.path == path else { return false }
      continuation = nil
      return arguments[2] == next.count
    }
  }

  /// While this is locked, only the answering thread allocates or frees memory. Other threads may have to wait for an
  /// answer during an allocation.
  private let state = MutexProtected(State())

  /// Makes a call fail from now on.
  ///
  /// - Parameters:
  ///   - place: The directory of the engine's files. Its name must be unique.
  ///   - losesUnsynced: Whether to record the pages whose sync failed, for ``loseUnsynced(in:)``.
  func begin(at place: URL, fault: SystemFault?, losesUnsynced: Bool) {
    replaceState(
      with: State(
        marker: Array("/\(place.lastPathComponent)".utf8), fault: fault,
        unsynced: losesUnsynced ? UnsyncedPages() : nil))
  }

  /// Makes all system calls work from now on.
  func endFault() { state.withLock { $0.fault = nil } }

  /// Stops intercepting.
  func end() { replaceState(with: State()) }

  private func replaceState(with new: State) {
    // The old state is freed outside the lock.
    _ = state.withLock { state in
      defer { state = new }
      return state
    }
  }

  var observation: Observation { state.withLock { $0.observation } }

  /// Reverts writes to files whose sync failed, unless they were written again since. The system has discarded them and
  /// will read the old contents from the disk.
  func loseUnsynced(in place: URL) throws {
    let unsynced = state.withLock { $0.unsynced?.takeLost() }
    try unsynced?.apply(in: place)
  }

  #if os(Linux) && (arch(x86_64) || arch(arm64))
    private static let installed = MutexProtected<SystemCallInterceptor?>(nil)

    /// The interceptor of this process.
    ///
    /// - Throws: ``Skip`` if system calls cannot be intercepted.
    static func shared() throws -> SystemCallInterceptor {
      try installed.withLock { installed in
        if let interceptor = installed { return interceptor }
        let interceptor = SystemCallInterceptor()
        let listener = try SystemCallListener { interceptor.answer(to: $0, $1) }
        do {
          listener.listen(to: try SystemCallFilter(of: SystemCall.allCases))
        } catch {
          listener.stop()
          throw error
        }
        installed = interceptor
        return interceptor
      }
    }

    private static let calls: [UInt32: SystemCall] = Dictionary(
      SystemCall.allCases.compactMap { call in call.number.map { ($0, call) } }
    ) { first, _ in first }

    private func answer(to request: SystemCallFilter.Request, _ filter: SystemCallFilter)
      -> SystemCallFilter.Answer
    {
      guard let call = Self.calls[request.number] else { return .proceed }
      let memory = filter.callerMemory
      return state.withLock { state in
        guard let marker = state.marker, let file = Self.file(of: call, request.arguments, memory),
          call == .msync || file.contains(marker), !Self.isUnlocking(call, request.arguments, memory),
          // A child process inherits the filter, but its memory cannot be read here.
          access("/proc/self/task/\(request.thread)", F_OK) == 0
        else { return .proceed }
        let number = state.observation.counts[call, default: 0] + 1
        state.observation.counts[call] = number
        let isContinuation = state.takeContinuation(call, file, request.arguments)
        let failure = state.failure(of: call, number, file) ?? (isContinuation ? .short : nil)
        let access = FileAccess(call: call, arguments: request.arguments, filter: filter)
        state.unsynced?.note(access, path: file, failure: failure)
        guard let failure else { return .proceed }
        if failure != .short {
          // Records the first failure if several calls fail.
          if state.observation.failedFile == nil {
            (state.observation.failedFile, state.failedPath) = (Self.name(file), file)
          }
          return .failure(failure.errorNumber)
        }
        guard let result = access.doHalf() else { return .proceed }
        state.observation.failedFile = Self.name(file)
        if !isContinuation, case .result(let done) = result {
          state.continuation = (call, file, request.arguments[2] - UInt64(max(0, done)))
        }
        return result
      }
    }

    /// Whether the call releases a lock, which cannot fail.
    private static func isUnlocking(
      _ call: SystemCall, _ arguments: [UInt64], _ memory: CallerMemory
    ) -> Bool {
      switch call {
      case .flock: arguments[1] & UInt64(LOCK_UN) != 0
      case .fcntl:
        // The first member of struct flock.
        memory.bytes(at: arguments[2], count: MemoryLayout<Int16>.size).elementsEqual(
          withUnsafeBytes(of: Int16(F_UNLCK), Array.init))
      default: false
      }
    }

    /// The path of the file of the call.
    private static func file(
      of call: SystemCall, _ arguments: [UInt64], _ memory: CallerMemory
    ) -> [UInt8]? {
      switch call.subject {
      case .descriptor(let index): return link("/proc/self/fd/\(descriptor(arguments[index]))")
      case .memory: return []
      case .path(let index, let directory):
        let path = memory.path(at: arguments[index])
        if path.isEmpty { return nil }
        if path.first == UInt8(ascii: "/") { return path }
        let start = directory.map { descriptor(arguments[$0]) }
        let base = start.map { $0 < 0 ? "cwd" : "fd/\($0)" } ?? "cwd"
        return (link("/proc/self/\(base)") ?? []) + [UInt8(ascii: "/")] + path
      }
    }

    private static func link(_ path: String) -> [UInt8]? {
      var isLink = false
      let target = [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { buffer, count in
        let length = buffer.withMemoryRebound(to: CChar.self) { buffer in
          buffer.baseAddress.map { readlink(path, $0, buffer.count) } ?? -1
        }
        (isLink, count) = (length >= 0, max(0, length))
      }
      return isLink ? target : nil
    }

    private static func name(_ path: [UInt8]) -> String {
      let name = String(decoding: path, as: UTF8.self).split(separator: "/").last.map(String.init) ?? "memory"
      return name.hasSuffix(" (deleted)") ? "a file without a name" : name
    }
  #else
    static func shared() throws -> SystemCallInterceptor {
      throw Skip(reason: "System calls can be made to fail on Linux only.")
    }
  #endif
}

/// The descriptor in an argument of a call.
private func descriptor(_ argument: UInt64) -> Int32 { Int32(truncatingIfNeeded: argument) }

extension [UInt8] {
  /// Whether these bytes contain the part. Uses the C library for speed: this runs for each call of an engine.
  fileprivate func contains(_ part: [UInt8]) -> Bool {
    withUnsafeBytes { bytes in
      part.withUnsafeBytes { part in
        guard var start = bytes.baseAddress, let first = part.first, let sought = part.baseAddress else {
          return part.isEmpty
        }
        var places = bytes.count - part.count + 1
        while places > 0, let found = memchr(start, Int32(first), places) {
          if memcmp(found, sought, part.count) == 0 { return true }
          let skipped = start.distance(to: UnsafeRawPointer(found)) + 1
          start += skipped
          places -= skipped
        }
        return false
      }
    }
  }
}

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// A call on a file that waits for an answer.
  struct FileAccess {
    let call: SystemCall
    let arguments: [UInt64]
    let filter: SystemCallFilter

    var descriptor: Int32 { Int32(truncatingIfNeeded: arguments[0]) }

    /// Makes the call with half of the bytes. Nil if there are too few of them.
    func doHalf() -> SystemCallFilter.Answer? {
      let count = Int(arguments[2]) / 2
      guard count > 0 else { return nil }
      let result = filter.pass(
        call, Int(bitPattern: UInt(arguments[0])), Int(bitPattern: UInt(arguments[1])), count,
        Int(bitPattern: UInt(arguments[3])))
      return result < 0 ? .failure(errno) : .result(result)
    }

    /// The bytes that the call writes, and their offset. Nil if it writes nothing.
    var written: (offset: Int, bytes: [UInt8])? {
      let bytes: [UInt8]
      switch call {
      case .write, .pwrite64: bytes = memory.bytes(at: arguments[1], count: Int(arguments[2]))
      case .writev, .pwritev:
        let parts = memory.bytes(at: arguments[1], count: 16 * Int(arguments[2]))
        bytes = parts.withUnsafeBytes { parts in
          stride(from: 0, to: parts.count, by: 16).flatMap {
            memory.bytes(
              at: parts.loadUnaligned(fromByteOffset: $0, as: UInt64.self),
              count: Int(parts.loadUnaligned(fromByteOffset: $0 + 8, as: UInt64.self)))
          }
        }
      default: return nil
      }
      if statusFlags & O_APPEND != 0 { return (length, bytes) }
      let isPositioned = call == .pwrite64 || call == .pwritev
      return (isPositioned ? Int(arguments[3]) : Int(lseek(descriptor, 0, SEEK_CUR)), bytes)
    }

    /// Whether writes through the descriptor are synchronous.
    var isSynchronous: Bool { statusFlags & O_DSYNC != 0 }

    private var statusFlags: Int32 { fcntl(descriptor, F_GETFL) }

    private var memory: CallerMemory { filter.callerMemory }

    private var length: Int { Int(Self.status(descriptor)?.st_size ?? 0) }

    /// The inode number of the file, if it is a regular file.
    var file: UInt64? { Self.status(descriptor).flatMap(Self.regular) }

    private static func status(_ descriptor: Int32) -> stat? {
      var status = stat()
      return fstat(descriptor, &status) == 0 ? status : nil
    }

    private static func regular(_ status: stat) -> UInt64? {
      status.st_mode & mode_t(S_IFMT) == mode_t(S_IFREG) ? UInt64(status.st_ino) : nil
    }

    /// The inode number of the file at a path, if it is a regular file.
    ///
    /// - Parameter hasOneName: Whether to ignore files with more than one link.
    static func file(at path: String, hasOneName: Bool = false) -> UInt64? {
      var status = stat()
      guard lstat(path, &status) == 0, !hasOneName || status.st_nlink == 1 else { return nil }
      return regular(status)
    }

    /// The contents of the file, read through the engine's own descriptor: closing another one would release the locks
    /// of the process on the file. Another one is only opened if the engine's is write-only.
    var contents: [UInt8] {
      if statusFlags & O_ACCMODE != O_WRONLY { return contents(through: Int(descriptor)) }
      let opened = "/proc/self/fd/\(descriptor)".withCString {
        filter.pass(.openat, -100, Int(bitPattern: $0), Int(O_RDONLY | O_CLOEXEC))
      }
      guard opened >= 0 else { return [] }
      defer { close(Int32(opened)) }
      return contents(through: opened)
    }

    private func contents(through opened: Int) -> [UInt8] {
      var bytes = [UInt8](repeating: 0, count: length)
      var count = 0
      while count < bytes.count {
        let read = bytes.withUnsafeMutableBytes {
          filter.pass(.pread64, opened, Int(bitPattern: $0.baseAddress) + count, $0.count - count, count)
        }
        if read <= 0 { break }
        count += read
      }
      return Array(bytes.prefix(count))
    }
  }
#endif
