import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Work that leaves files or entries behind if the process ends before it has cleaned up.
enum CleaningUp {
  private static let count = MutexProtected(0)

  /// Calls `body`, for the end of which an interrupted command waits. It must end soon after its task has been cancelled.
  static func awaited<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    count.withLock { $0 += 1 }
    defer { count.withLock { $0 -= 1 } }
    return try await body()
  }

  static var isAwaited: Bool { count.withLock { $0 > 0 } }

  /// Waits on a thread that may wait.
  static func waitUntilDone() {
    while isAwaited { usleep(20_000) }
  }
}
