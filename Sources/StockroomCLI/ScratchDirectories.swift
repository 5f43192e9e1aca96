import BenchmarkKit
import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The directories that are removed when a command ends, even if a signal ends it.
enum ScratchDirectories {
  private static let existing = MutexProtected<[URL: ScratchDirectory]>([:])

  static func add(_ directory: ScratchDirectory) {
    existing.withLock { $0[directory.url] = directory }
  }

  /// Removes the directory.
  ///
  /// - Throws: `StorageError` that names the path and the cause.
  static func remove(_ directory: ScratchDirectory) throws {
    defer { existing.withLock { $0[directory.url] = nil } }
    try directory.remove()
  }

  /// Removes all of them. Retries a few times, since an engine that is still running may create files.
  static func removeAll() {
    for directory in existing.withLock({ Array($0.values) }) {
      for _ in 0..<10 where (try? directory.remove()) == nil { usleep(20_000) }
    }
  }
}
