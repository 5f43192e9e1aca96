import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Resource usage of the process and its threads.

extension System {
  /// The processor time of this process.
  static var processorTime: Duration {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
  }

  /// The processor time of the calling thread.
  static var threadProcessorTime: Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
  }

  /// Opens the file that ``timeOnRunQueue(_:)`` needs. Nil if the system does not have it.
  static func openThreadStatistics() -> Int32? {
    let file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)
    return file < 0 ? nil : file
  }

  /// How long the thread that opened the statistics was runnable while other threads ran.
  static func timeOnRunQueue(_ statistics: Int32?) -> Duration {
    guard let statistics else { return .zero }
    var bytes = [UInt8](repeating: 0, count: 96)
    let count = pread(statistics, &bytes, bytes.count, 0)
    // The time on a processor, the time on the run queue in nanoseconds, and the number of time slices.
    let numbers = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: " ")
    return .nanoseconds(numbers.count > 1 ? Int64(numbers[1]) ?? 0 : 0)
  }

  /// Whether another thread of the process is in one of these states: R if it is running or runnable, D if it waits for
  /// a disk. False if the system does not report it.
  static func hasAnotherThread(in states: String) -> Bool {
    let list = "/proc/self/task"
    let threads = (try? FileManager.default.contentsOfDirectory(atPath: list)) ?? []
    let own = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
    return threads.contains { thread in
      if own?.hasSuffix("/\(thread)") ?? true { return false }
      // A thread may have ended meanwhile. The part in parentheses is its name.
      guard let status = FileManager.default.contents(atPath: "\(list)/\(thread)/stat"),
        let end = status.lastIndex(of: UInt8(ascii: ")"))
      else { return false }
      return status.dropFirst(end - status.startIndex + 2).first.map { states.utf8.contains($0) } ?? false
    }
  }

  /// The bytes that the process has read, and the pages of memory that it has touched so far.
  static var usage: (bytesRead: Int, pagesTouched: Int) {
    var usage = rusage()
    #if canImport(Darwin) || canImport(Musl)
      getrusage(RUSAGE_SELF, &usage)
    #else
      getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    #endif
    let io = (try? String(contentsOfFile: "/proc/self/io", encoding: .utf8)) ?? ""
    let bytes = io.split(whereSeparator: \.isNewline).first { $0.hasPrefix("rchar: ") }.flatMap {
      Int($0.dropFirst(7))
    }
    return (bytes ?? 0, Int(usage.ru_minflt))
  }
}
