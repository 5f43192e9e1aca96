import Foundation
import StockroomCore
import StockroomKitSupport

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Limits of a process that a single check uses.

extension System {
  /// How many file descriptors the process has open.
  static var descriptorCount: Int {
    // Where they cannot be listed, each number is looked at, which takes milliseconds.
    SystemProcess.openDescriptors?.count ?? (0..<descriptorLimit).count { fcntl($0, F_GETFD) >= 0 }
  }

  /// No descriptor is as large as this.
  private static var descriptorLimit: Int32 { Int32(clamping: min(sysconf(Int32(_SC_OPEN_MAX)), 1 << 16)) }

  /// Makes every write that would make a file longer than this fail, with EFBIG.
  static func limitFileSize(to bytes: Int) throws {
    // Else the system would end the process.
    signal(SIGXFSZ, SIG_IGN)
    guard setFileSizeLimit(rlim_t(bytes)) else {
      throw Skip(reason: "The size of files could not be limited: \(SystemError(errno)).")
    }
  }

  /// Takes the limit away again.
  static func unlimitFileSize() { _ = setFileSizeLimit(nil) }

  private static func setFileSizeLimit(_ bytes: rlim_t?) -> Bool {
    #if canImport(Darwin) || canImport(Musl)
      setLimit(RLIMIT_FSIZE, to: bytes)
    #else
      setLimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), to: bytes)
    #endif
  }

  /// Sets how many descriptors the process can have, or as many as it may.
  @discardableResult static func limitDescriptors(to count: rlim_t?) -> Bool {
    #if canImport(Darwin) || canImport(Musl)
      setLimit(RLIMIT_NOFILE, to: count)
    #else
      setLimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), to: count)
    #endif
  }

  #if canImport(Darwin) || canImport(Musl)
    private typealias Resource = Int32
  #else
    private typealias Resource = __rlimit_resource_t
  #endif

  private static func setLimit(_ resource: Resource, to value: rlim_t?) -> Bool {
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0 else { return false }
    limit.rlim_cur = min(value ?? limit.rlim_max, limit.rlim_max)
    return setrlimit(resource, &limit) == 0
  }
}

/// Takes all file descriptors that a process can have but for some, until they are released.
final class DescriptorHold: Sendable {
  private let held: MutexProtected<[Int32]>

  init(leaving count: Int) throws {
    // More than a process has that does nothing else, and few enough to be taken quickly.
    guard System.limitDescriptors(to: 512) else {
      throw Skip(reason: "The number of file descriptors could not be limited: \(SystemError(errno)).")
    }
    var held: [Int32] = []
    while true {
      let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
      if descriptor < 0 { break }
      held.append(descriptor)
    }
    for descriptor in held.suffix(count) { close(descriptor) }
    self.held = MutexProtected(held.dropLast(count))
  }

  deinit { release() }

  func release() {
    let descriptors = held.withLock { held in
      defer { held = [] }
      return held
    }
    for descriptor in descriptors { close(descriptor) }
    System.limitDescriptors(to: nil)
  }
}
