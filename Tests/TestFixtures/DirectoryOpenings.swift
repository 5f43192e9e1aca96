#if os(Linux)
  package import Foundation
  import Glibc
  internal import StockroomCore

  /// Counts how often a directory is opened, which a sync of it needs.
  package final class DirectoryOpenings: Sendable {
    private let watch: Int32

    package init(of directory: URL) throws {
      watch = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
      let path = directory.path(percentEncoded: false)
      // Closing counts as another event, without which two openings would be reported as one.
      guard inotify_add_watch(watch, path, UInt32(IN_OPEN | IN_CLOSE_NOWRITE)) >= 0 else {
        throw StorageError.posix(errno, "Watching \(path) failed.")
      }
    }

    deinit { close(watch) }

    /// The number since the last call.
    package func takeCount() -> Int {
      var bytes = [UInt8](repeating: 0, count: 1 << 16)
      let end = max(0, read(watch, &bytes, bytes.count))
      var (start, openings) = (0, 0)
      while start < end {
        let (mask, nameLength) = bytes.withUnsafeBytes {
          (
            $0.loadUnaligned(fromByteOffset: start + 4, as: UInt32.self),
            $0.loadUnaligned(fromByteOffset: start + 12, as: UInt32.self)
          )
        }
        // Files in the directory have names.
        if nameLength == 0, mask & UInt32(IN_OPEN) != 0 { openings += 1 }
        start += 16 + Int(nameLength)
      }
      return openings
    }
  }
#endif
