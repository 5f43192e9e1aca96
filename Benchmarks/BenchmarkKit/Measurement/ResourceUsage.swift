#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The memory that the process has used since this was created, and its processor time since then or since
/// ``startProcessorTime()``.
struct ResourceUsage: Sendable {
  private var processorTimeAtStart: Double
  private let memoryAtStart: UInt64?

  init() {
    Self.returnFreeMemory()
    Self.resetPeakMemory()
    memoryAtStart = Self.memory("VmRSS")
    processorTimeAtStart = Self.processorTime
  }

  /// Excludes the processor time until now.
  mutating func startProcessorTime() { processorTimeAtStart = Self.processorTime }

  /// The processor time of all threads in seconds.
  var processorSeconds: Double { Self.processorTime - processorTimeAtStart }

  /// The growth of the resident memory at its peak, in bytes; nil where the system does not report it.
  var peakMemory: UInt64? {
    guard let memoryAtStart, let peak = Self.memory("VmHWM") else { return nil }
    return peak > memoryAtStart ? peak - memoryAtStart : 0
  }

  /// The processor time of all threads since the process began, in seconds.
  static var processorTime: Double {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) * 1e-9
  }

  /// Returns freed memory to the system. Otherwise later subjects would reuse it, which hides growth of memory and
  /// saves them the time of allocating it.
  private static func returnFreeMemory() { _ = trim?(0) }

  /// Glibc's `malloc_trim`, which its Swift module does not have; nil where there is none.
  private static let trim: (@convention(c) (Int) -> Int32)? = {
    dlsym(dlopen(nil, RTLD_NOW), "malloc_trim").map {
      unsafeBitCast($0, to: (@convention(c) (Int) -> Int32).self)
    }
  }()

  /// On Linux the peak (`VmHWM`) is that of the whole process until it is reset.
  private static func resetPeakMemory() {
    #if !canImport(Darwin)
      guard let file = fopen("/proc/self/clear_refs", "w") else { return }
      fputs("5", file)
      fclose(file)
    #endif
  }

  private static func memory(_ field: String) -> UInt64? {
    #if !canImport(Darwin)
      // Nil also where /proc is not mounted.
      guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8) else { return nil }
      let line = status.split(separator: "\n").first { $0.hasPrefix(field + ":") }
      return line?.split(separator: " ").dropLast().last.flatMap { UInt64($0) }.map { $0 * 1024 }
    #else
      return nil
    #endif
  }
}

/// The disk space of the files below a directory in bytes: allocated blocks, without holes.
///
/// - Throws: `StorageError` or `CocoaError` if a file cannot be examined; the result is never too small.
func bytesOnDisk(in directory: URL) throws -> UInt64 {
  let path = directory.path(percentEncoded: false)
  return try FileManager.default.subpathsOfDirectory(atPath: path).reduce(0) { sum, file in
    var status = stat()
    guard lstat("\(path)/\(file)", &status) == 0 else {
      // A file may be removed at the same time.
      if errno == ENOENT { return sum }
      throw StorageError.posix(errno, "Examining \(path)/\(file) failed.")
    }
    return status.st_mode & S_IFMT == S_IFREG ? sum + UInt64(status.st_blocks) * 512 : sum
  }
}
