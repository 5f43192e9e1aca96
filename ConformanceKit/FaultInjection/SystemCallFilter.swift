import StockroomCore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Has the kernel notify this process before it makes one of the ``SystemCall``s: a seccomp filter with
  /// notifications, see `seccomp_unotify(2)`. It stays until the process ends.
  ///
  /// Strace could do that from the outside. But it counts the calls of each thread separately, and Swift's pool
  /// distributes work to threads differently each time. So the n-th call would not be the same in each run.
  struct SystemCallFilter {
    /// A call that waits for an answer.
    struct Request {
      let identifier: UInt64
      let thread: UInt32
      let number: UInt32
      let arguments: [UInt64]

      /// - Parameter record: The received notification.
      init(_ record: UnsafeMutableRawPointer) {
        identifier = record.load(as: UInt64.self)
        thread = SystemCallFilter.thread(of: record)
        number = record.load(fromByteOffset: 16, as: UInt32.self)
        arguments = (0..<6).map { record.load(fromByteOffset: 32 + 8 * $0, as: UInt64.self) }
      }
    }

    enum Answer {
      /// The kernel makes the call.
      case proceed
      case result(Int)
      /// An error number.
      case failure(Int32)
    }

    private let listener: Int32
    private let system: RawSystemCall

    /// - Throws: ``Skip`` if the kernel does not allow it.
    init(of calls: [SystemCall]) throws {
      let system = try RawSystemCall.required()
      self.system = system
      Self.keepFreedMemory()
      // Without this, only the superuser may install filters (PR_SET_NO_NEW_PRIVS).
      _ = system(Number.prctl, 38, 1, 0, 0, 0, 0)
      var program = Self.program(calls)
      let result = program.withUnsafeMutableBytes { program in
        var header = [UInt64(program.count / 8), UInt64(UInt(bitPattern: program.baseAddress))]
        return header.withUnsafeMutableBytes {
          // For all threads, with a descriptor for notifications, and an error if a thread has another filter.
          system(Number.seccomp, 1, 1 | 8 | 16, Int(bitPattern: $0.baseAddress), 0, 0, 0)
        }
      }
      guard result >= 0 else {
        throw Skip(
          reason: "The kernel does not let a process intercept its own system calls: \(SystemError(errno)).")
      }
      listener = Int32(truncatingIfNeeded: result)
    }

    /// The sizes of the kernel's notification and reply.
    static let (recordSize, replySize) = (80, 24)

    /// Waits for a call. Returns whether there is one.
    func receive(into record: UnsafeMutableRawPointer) -> Bool {
      while true {
        memset(record, 0, Self.recordSize)
        if ioctl(listener, .init(0xC050_2100 as UInt), record) == 0 { return true }
        // The calling thread may have been killed.
        guard errno == EINTR || errno == ENOENT else { return false }
      }
    }

    /// The thread that makes the received call.
    static func thread(of record: UnsafeMutableRawPointer) -> UInt32 {
      record.load(fromByteOffset: 8, as: UInt32.self)
    }

    /// Lets the kernel make the received call.
    func letPass(_ record: UnsafeMutableRawPointer, reply: UnsafeMutableRawPointer) {
      send(reply, to: record.load(as: UInt64.self), result: 0, failure: 0, proceeds: true)
    }

    func answer(_ request: Request, _ answer: Answer) {
      let reply = UnsafeMutableRawPointer.allocate(byteCount: Self.replySize, alignment: 8)
      defer { reply.deallocate() }
      let identifier = request.identifier
      switch answer {
      case .proceed: send(reply, to: identifier, result: 0, failure: 0, proceeds: true)
      case .result(let value): send(reply, to: identifier, result: value, failure: 0, proceeds: false)
      case .failure(let number): send(reply, to: identifier, result: 0, failure: number, proceeds: false)
      }
    }

    private func send(
      _ reply: UnsafeMutableRawPointer, to identifier: UInt64, result: Int, failure: Int32, proceeds: Bool
    ) {
      reply.storeBytes(of: identifier, as: UInt64.self)
      reply.storeBytes(of: Int64(result), toByteOffset: 8, as: Int64.self)
      reply.storeBytes(of: -failure, toByteOffset: 16, as: Int32.self)
      reply.storeBytes(of: proceeds ? 1 : 0, toByteOffset: 20, as: UInt32.self)
      // If the answer fails, the calling thread no longer exists.
      _ = ioctl(listener, .init(0xC018_2101 as UInt), reply)
    }

    /// Access to the memory of threads that wait for an answer.
    var callerMemory: CallerMemory { CallerMemory(system) }

    /// Makes a call that the filter does not intercept.
    func pass(_ call: SystemCall, _ arguments: Int...) -> Int {
      let all = arguments + Array(repeating: 0, count: max(0, 5 - arguments.count))
      return system(Int(call.number ?? 0), all[0], all[1], all[2], all[3], all[4], Self.password)
    }

    /// Stops the C library from returning memory of threads to the system.
    ///
    /// The first time it does so, glibc opens a file of the kernel while it holds a lock. The answering thread needs
    /// the same lock (`shrink_heap` in malloc/arena.c).
    private static func keepFreedMemory() {
      #if canImport(Glibc)
        typealias Function = @convention(c) (Int32, Int32) -> Int32
        guard let symbol = System.symbol("mallopt") else { return }
        // M_TRIM_THRESHOLD: more than the free memory of any thread.
        _ = unsafeBitCast(symbol, to: Function.self)(-1, .max)
      #endif
    }

    private enum Number {
      #if arch(x86_64)
        static let (prctl, seccomp, architecture) = (157, 317, UInt32(0xC000_003E))
      #else
        static let (prctl, seccomp, architecture) = (167, 277, UInt32(0xC000_00B7))
      #endif
    }

    /// The last argument of calls that the filter lets pass. No intercepted call has that many arguments except `mmap`,
    /// whose last argument is a multiple of the page size.
    private static let password = 0x5EED_5EED_C0DE_0001

    /// The filter as a BPF program, see `bpf(4)`: eight bytes for each instruction.
    private static func program(_ calls: [SystemCall]) -> [UInt64] {
      func instruction(_ code: UInt16, _ value: UInt32, then: Int = 0, otherwise: Int = 0) -> UInt64 {
        UInt64(code) | UInt64(UInt8(then)) << 16 | UInt64(UInt8(otherwise)) << 24 | UInt64(value) << 32
      }
      func load(_ offset: UInt32) -> UInt64 { instruction(0x20, offset) }
      func jump(if value: UInt32, then: Int, otherwise: Int) -> UInt64 {
        instruction(0x15, value, then: then, otherwise: otherwise)
      }
      let (allow, ask) = (instruction(0x06, 0x7FFF_0000), instruction(0x06, 0x7FC0_0000))
      // The offsets are those of struct seccomp_data.
      var program = [
        load(4), jump(if: Number.architecture, then: 1, otherwise: 0), allow,
        load(16 + 40), jump(if: UInt32(truncatingIfNeeded: password), then: 0, otherwise: 3),
        load(16 + 44), jump(if: UInt32(truncatingIfNeeded: password >> 32), then: 0, otherwise: 1), allow,
        load(0),
      ]
      for call in calls {
        guard let number = call.number else { continue }
        switch call {
        case .mmap:
          // Anonymous memory is not intercepted: it may be allocated under a lock that the answering thread needs.
          program += [
            jump(if: number, then: 0, otherwise: 4), load(16 + 32), jump(if: .max, then: 0, otherwise: 1),
            allow, ask,
          ]
        case .fcntl:
          let commands = SystemCall.lockCommands
          program.append(jump(if: number, then: 0, otherwise: commands.count + 3))
          program.append(load(16 + 8))
          for (index, command) in commands.enumerated() {
            program.append(jump(if: command, then: commands.count - index, otherwise: 0))
          }
          program += [allow, ask]
        default:
          program += [jump(if: number, then: 0, otherwise: 1), ask]
        }
      }
      return program + [allow]
    }
  }

  /// The C library's `syscall`, which Swift does not import because it is variadic.
  struct RawSystemCall: Sendable {
    private typealias Function = @convention(c) (Int, Int, Int, Int, Int, Int, Int) -> Int
    private let function: Function

    static let shared = RawSystemCall()

    /// - Throws: ``Skip`` if it is not available.
    static func required() throws -> RawSystemCall {
      guard let shared else {
        throw Skip(reason: "System calls cannot be made without the C library here.")
      }
      return shared
    }

    private init?() {
      guard let symbol = System.symbol("syscall") else { return nil }
      function = unsafeBitCast(symbol, to: Function.self)
    }

    func callAsFunction(_ number: Int, _ a: Int, _ b: Int, _ c: Int, _ d: Int, _ e: Int, _ f: Int) -> Int {
      function(number, a, b, c, d, e, f)
    }

    /// The kernel's identifier of the calling thread.
    var threadIdentifier: UInt32 {
      #if arch(x86_64)
        let gettid = 186
      #else
        let gettid = 178
      #endif
      return UInt32(truncatingIfNeeded: self(gettid, 0, 0, 0, 0, 0, 0))
    }
  }
#endif
