#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Access to the memory of a thread that waits in a system call, to which its arguments point.
  ///
  /// The system copies it where it may. The thread sanitizer does not see that the thread waits, and would report a race.
  struct CallerMemory {
    private let system: RawSystemCall
    /// The longest path that Linux takes.
    private static let longestPath = 4_096

    init(_ system: RawSystemCall) { self.system = system }

    /// Bytes at an address; none where there is no memory.
    func bytes(at address: UInt64, count: Int) -> [UInt8] {
      guard let pointer = UnsafeRawPointer(bitPattern: UInt(address)), count > 0 else { return [] }
      var isRefused = false
      let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        let result = copy(from: address, to: buffer)
        initialized = max(0, result)
        isRefused = result < 0 && (errno == EPERM || errno == ENOSYS)
      }
      // A sandbox may forbid the call.
      return isRefused ? Array(UnsafeRawBufferPointer(start: pointer, count: count)) : bytes
    }

    /// The bytes of a path, without the zero at its end.
    func path(at address: UInt64) -> [UInt8] {
      var (path, next): ([UInt8], UInt64) = ([], address)
      while path.count < Self.longestPath {
        // Behind the page with the end there may be none.
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

    /// The smallest that a page can have.
    private static let pageSize = 4_096

    #if arch(x86_64)
      private static let processVMReadv = 310
    #else
      private static let processVMReadv = 270
    #endif
  }
#endif
