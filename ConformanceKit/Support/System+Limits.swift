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

// Limits of a process that only single checks use.

extension System {
  /// How many file descriptors the process has open.
  static var descriptorCount: Int {
    // If they cannot be listed, each number is tested, which takes milliseconds.
    SystemProcess.openDescriptors?.count ?? (0..<descriptorLimit).count { fcntl($0, F_GETFD) >= 0 }
  }

  /// An upper bound of all descriptors.
  private static var descriptorLimit: Int32 { Int32(clamping: min(sysconf(Int32(_SC_OPEN_MAX)), 1 << 16)) }

  /// Makes every write that would extend a file beyond this size fail with EFBIG.
  static func limitFileSize(to bytes: Int) throws {
    // Otherwise the signal would end the process.
    signal(SIGXFSZ, SIG_IGN)
    guard setFileSizeLimit(rlim_t(bytes)) else {
      throw Skip(reason: "The size of files could not be limited: \(SystemError(errno)).")
    }
  }

  /// Removes the limit.
  static func unlimitFileSize() { _ = setFileSizeLimit(nil) }

  private static func setFileSizeLimit(_ bytes: rlim_t?) -> Bool {
    #if canImport(Darwin) || canImport(Musl)
      setLimit(RLIMIT_FSIZE, to: bytes)
    #else
      setLimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), to: bytes)
    #endif
  }

  /// Sets the maximum number of descriptors of the process. Nil for as many as are allowed.
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

/// Uses up all file descriptors of the process except some, until they are released.
final class DescriptorHold: Sendable {
  private let held: MutexProtected<[Int32]>

  init(leaving count: Int) throws {
    // More than an idle process has open, and few enough to be used up quickly.
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
