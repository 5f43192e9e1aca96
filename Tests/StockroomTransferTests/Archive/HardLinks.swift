#if os(Linux) && (arch(x86_64) || arch(arm64))
  import Foundation
  import Glibc
  import StockroomCore

  /// Makes the kernel refuse hard links, like a file system without them. Few of those can be mounted in a test.
  enum HardLinks {
    /// `syscall(2)`, which takes any number of arguments, so that Swift does not import it.
    private typealias SystemCall =
      @convention(c) (Int, UInt, UInt, UnsafeMutableRawPointer?, UInt, UInt) -> Int

    private static var systemCall: SystemCall? {
      dlsym(nil, "syscall").map { unsafeBitCast($0, to: SystemCall.self) }
    }

    #if arch(x86_64)
      private static let (prctl, seccomp, linkat): (Int, Int, UInt64) = (157, 317, 265)
    #else
      private static let (prctl, seccomp, linkat): (Int, Int, UInt64) = (167, 277, 37)
    #endif

    /// Whether ``forbid()`` works here.
    static var canBeForbidden: Bool {
      var answer: UInt32 = 0x5_0000
      let availability: UInt = 2
      return systemCall?(seccomp, availability, 0, &answer, 0, 0) == 0
    }

    /// Makes `linkat` fail with `EPERM` in all threads of this process, permanently.
    static func forbid() throws {
      // Each instruction of the filter has a code (16 bits), the jump offsets if a comparison holds and if it does not
      // (8 bits each), and an operand (32 bits). See seccomp(2).
      var filter: [UInt64] = [
        0x20,  // Loads the number of the system call.
        0x15 | 1 << 24 | linkat << 32,  // If it is not this one, skips the next instruction.
        0x06 | UInt64(0x5_0000 | EPERM) << 32,  // Fails with this error.
        0x06 | 0x7fff_0000 << 32,  // Allows the call.
      ]
      let count = filter.count
      let (noNewPrivileges, setFilter, allThreads): (UInt, UInt, UInt) = (38, 1, 1)
      let result = filter.withUnsafeMutableBytes { filter in
        // The number of instructions (16 bits), and their address.
        var program: (UInt, UnsafeMutableRawPointer?) = (UInt(count), filter.baseAddress)
        _ = systemCall?(prctl, noNewPrivileges, 1, nil, 0, 0)
        return systemCall?(seccomp, setFilter, allThreads, &program, 0, 0)
      }
      guard result == 0 else { throw StorageError.posix(errno, "Forbidding hard links failed.") }
    }
  }
#endif
