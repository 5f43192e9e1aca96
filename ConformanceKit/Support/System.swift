import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The kit's interface to the operating system.
enum System {
  /// Prints to standard error, for runs without a report.
  static func note(_ text: String) {
    let line = Array("ConformanceKit: \(text)\n".utf8)
    // A failure to write here cannot be reported anywhere.
    _ = write(STDERR_FILENO, line, line.count)
  }

  /// Blocks the calling thread, which must not belong to the cooperative pool.
  static func pauseThread(milliseconds: Int) {
    usleep(UInt32(milliseconds * 1000))
  }

  /// The address of a function or variable of this program or one of its libraries.
  static func symbol(_ name: String) -> UnsafeMutableRawPointer? { dlsym(dlopen(nil, RTLD_NOW), name) }

  /// Whether this process, and with it a worker of the same build, was built with the thread sanitizer.
  static let hasThreadSanitizer = symbol("__tsan_init") != nil
}

extension URL {
  /// The path as the system takes it.
  var systemPath: String { path(percentEncoded: false) }
}
