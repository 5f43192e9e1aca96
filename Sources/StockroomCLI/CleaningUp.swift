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

  /// Calls `body`. A command that is interrupted by a signal waits for it to return, so it must return soon after its
  /// task has been cancelled.
  static func awaited<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    count.withLock { $0 += 1 }
    defer { count.withLock { $0 -= 1 } }
    return try await body()
  }

  static var isAwaited: Bool { count.withLock { $0 > 0 } }

  /// Blocks the calling thread until all calls of ``awaited(_:)`` have returned. Checks every 20 milliseconds.
  static func waitUntilDone() {
    while isAwaited { usleep(20_000) }
  }
}
