import StockroomCore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Has the kernel ask this process before it makes one of the ``SystemCall``s: a filter with notifications, described in
  /// `seccomp_unotify(2)`. It stays until the process ends.
  ///
  /// Strace could do that from the outside, but counts the calls of each thread on their own, so that the n-th call is
  /// another one each time that Swift's pool distributes its work otherwise.
  struct SystemCallFilter {
    /// A call that waits for an answer.
    struct Request {
      let identifier: UInt64
      let thread: UInt32
      let number: UInt32
      let arguments: [UInt64]
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

    /// - Throws: ``Skip`` where the kernel does not allow it.
    init(of calls: [SystemCall]) throws {
      guard let system = RawSystemCall.shared else {
        throw Skip(reason: "The system's calls cannot be made without the C library here.")
      }
      self.system = system
      // The superuser need not, but a process that cannot gain rights may install filters.
      _ = system(Number.prctl, 38, 1, 0, 0, 0, 0)
      var program = Self.program(calls)
      let result = program.withUnsafeMutableBytes { program in
        var header = [UInt64(program.count / 8), UInt64(UInt(bitPattern: program.baseAddress))]
        return header.withUnsafeMutableBytes {
          // For all threads, with a descriptor for the questions, and an error if a thread has another filter.
          system(Number.seccomp, 1, 1 | 8 | 16, Int(bitPattern: $0.baseAddress), 0, 0, 0)
        }
      }
      guard result >= 0 else {
        throw Skip(reason: "The kernel does not let a process look at its own calls: \(SystemError(errno)).")
      }
      listener = Int32(truncatingIfNeeded: result)
    }

    /// Waits for a call. Nil if there will be none.
    func next() -> Request? {
      while true {
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: 80, alignment: 8)
        defer { buffer.deallocate() }
        buffer.initializeMemory(as: UInt8.self, repeating: 0, count: 80)
        if ioctl(listener, .init(0xC050_2100 as UInt), buffer) != 0 {
          // The thread that asked may have been killed.
          if errno == EINTR || errno == ENOENT { continue }
          return nil
        }
        return Request(
          identifier: buffer.load(as: UInt64.self), thread: buffer.load(fromByteOffset: 8, as: UInt32.self),
          number: buffer.load(fromByteOffset: 16, as: UInt32.self),
          arguments: (0..<6).map { buffer.load(fromByteOffset: 32 + 8 * $0, as: UInt64.self) })
      }
    }

    func answer(_ request: Request, _ answer: Answer) {
      let buffer = UnsafeMutableRawPointer.allocate(byteCount: 24, alignment: 8)
      defer { buffer.deallocate() }
      buffer.initializeMemory(as: UInt8.self, repeating: 0, count: 24)
      buffer.storeBytes(of: request.identifier, as: UInt64.self)
      switch answer {
      case .proceed: buffer.storeBytes(of: 1, toByteOffset: 20, as: UInt32.self)
      case .result(let value): buffer.storeBytes(of: Int64(value), toByteOffset: 8, as: Int64.self)
      case .failure(let number): buffer.storeBytes(of: -number, toByteOffset: 16, as: Int32.self)
      }
      // If it cannot be answered, the thread that asked is no more.
      _ = ioctl(listener, .init(0xC018_2101 as UInt), buffer)
    }

    /// Makes a call that the filter lets pass.
    func pass(_ call: SystemCall, _ arguments: Int...) -> Int {
      let all = arguments + Array(repeating: 0, count: max(0, 5 - arguments.count))
      return system(Int(call.number ?? 0), all[0], all[1], all[2], all[3], all[4], Self.password)
    }

    private enum Number {
      #if arch(x86_64)
        static let (prctl, seccomp, architecture) = (157, 317, UInt32(0xC000_003E))
      #else
        static let (prctl, seccomp, architecture) = (167, 277, UInt32(0xC000_00B7))
      #endif
    }

    /// What the last argument of a call is that nobody need be asked about. No call of interest has as many arguments,
    /// but for `mmap`, whose last is a multiple of the size of a page.
    private static let password = 0x5EED_5EED_C0DE_0001

    /// The filter, in the language of `bpf(4)`: eight bytes to an instruction.
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
          // Memory that is no file is not asked about: it may be allocated under a lock that the answer needs, too.
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

  /// The C library's `syscall`, which Swift does not import since it takes any number of arguments.
  struct RawSystemCall: Sendable {
    private typealias Function = @convention(c) (Int, Int, Int, Int, Int, Int, Int) -> Int
    private let function: Function

    static let shared = RawSystemCall()

    private init?() {
      guard let symbol = dlsym(dlopen(nil, RTLD_NOW), "syscall") else { return nil }
      function = unsafeBitCast(symbol, to: Function.self)
    }

    func callAsFunction(_ number: Int, _ a: Int, _ b: Int, _ c: Int, _ d: Int, _ e: Int, _ f: Int) -> Int {
      function(number, a, b, c, d, e, f)
    }
  }
#endif
