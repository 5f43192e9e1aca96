#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Access to the memory of a thread that waits in a system call, at the addresses in its arguments.
  ///
  /// If possible, the kernel copies the memory: the thread sanitizer does not know that the thread is blocked, and
  /// would report a direct read as a race.
  struct CallerMemory {
    private let system: RawSystemCall
    /// The maximum length of a path on Linux.
    private static let longestPath = 4_096

    init(_ system: RawSystemCall) { self.system = system }

    /// The bytes at an address, or none if the memory is not mapped.
    func bytes(at address: UInt64, count: Int) -> [UInt8] {
      guard let pointer = UnsafeRawPointer(bitPattern: UInt(address)), count > 0 else { return [] }
      var isRefused = false
      let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        let result = copy(from: address, to: buffer)
        initialized = max(0, result)
        isRefused = result < 0 && (errno == EPERM || errno == ENOSYS)
      }
      // A sandbox may forbid the system call.
      return isRefused ? Array(UnsafeRawBufferPointer(start: pointer, count: count)) : bytes
    }

    /// The bytes of a path, without the terminating zero.
    func path(at address: UInt64) -> [UInt8] {
      var (path, next): ([UInt8], UInt64) = ([], address)
      while path.count < Self.longestPath {
        // The page after the end of the path may not be mapped.
        let part = bytes(at: next, count: Self.pageSize - Int(next % UInt64(Self.pageSize)))
        let text = part.prefix { $0 != 0 }
        path += text
        if part.isEmpty || text.count < part.count { break }
        next += UInt64(part.count)
      }
      return path
    }

    private func copy(from address: UInt64, to buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
      let size = UInt64(buffer.count)
      let local = [UInt64(UInt(bitPattern: buffer.baseAddress)), size]
      return local.withUnsafeBytes { local in
        [address, size].withUnsafeBytes { remote in
          system(
            Self.processVMReadv, Int(getpid()), Int(bitPattern: local.baseAddress), 1,
            Int(bitPattern: remote.baseAddress), 1, 0)
        }
      }
    }

    /// The smallest page size of any system.
    private static let pageSize = 4_096

    #if arch(x86_64)
      private static let processVMReadv = 310
    #else
      private static let processVMReadv = 270
    #endif
  }
#endif
