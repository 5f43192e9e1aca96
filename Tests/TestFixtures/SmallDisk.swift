#if os(Linux)
  package import Foundation
  import Glibc
  package import StockroomCore

  /// An in-memory file system that is unmounted with the last reference to it. Requires the right to mount.
  package final class SmallDisk: Sendable {
    private let mountPoint: TemporaryDirectory

    /// - Parameters:
    ///   - options: The options of `mount -o`: `size=4m`, `nr_inodes=40`.
    ///   - type: `tmpfs`, or `ramfs`, which has no extended attributes.
    package init(_ options: String = "", type: String = "tmpfs", isReadOnly: Bool = false) throws {
      mountPoint = try TemporaryDirectory()
      let path = mountPoint.url.path(percentEncoded: false)
      guard mount(type, path, type, isReadOnly ? UInt(MS_RDONLY) : 0, options) == 0 else {
        throw StorageError.posix(errno, "Mounting a file system on \(path) failed.")
      }
    }

    deinit { umount2(url.path(percentEncoded: false), Int32(MNT_DETACH)) }

    /// The mount point.
    package var url: URL { mountPoint.url }

    /// A directory on the file system for an engine, not created yet.
    package var directory: FileManager.Directory { FileManager.Directory(url: url.appending(path: "store")) }

    /// Remounts the file system read-only. No file may be open for writing.
    package func makeReadOnly() throws {
      let path = url.path(percentEncoded: false)
      let end = ContinuousClock.now + .seconds(60)
      while mount("", path, "", UInt(MS_REMOUNT | MS_RDONLY), nil) != 0 {
        // A process that another test starts has copies of all descriptors until it calls exec.
        guard errno == EBUSY, ContinuousClock.now < end else {
          throw StorageError.posix(errno, "Making \(path) read-only failed.")
        }
        sched_yield()
      }
    }

    /// Fills the file system, leaving the given number of bytes free.
    package func fill(leaving count: Int = 0) throws {
      let file = open(ballast.path(percentEncoded: false), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
      defer { close(file) }
      let block = [UInt8](repeating: 1, count: 4096)
      while write(file, block, block.count) > 0 {}
      var status = stat()
      fstat(file, &status)
      guard ftruncate(file, max(0, status.st_size - count)) == 0 else {
        throw StorageError.posix(errno, "Filling \(url) failed.")
      }
    }

    /// Takes up the given number of bytes.
    package func fill(_ count: Int) throws { try Data(count: count).write(to: ballast) }

    /// Frees the space taken up by `fill`.
    package func makeRoom() throws {
      // Truncated before it is removed: a process that another test is starting may have inherited the open
      // file, which would keep the space in use.
      try FileHandle(forWritingTo: ballast).truncate(atOffset: 0)
      try FileManager.default.removeItem(at: ballast)
    }

    private var ballast: URL { url.appending(path: "ballast") }

    /// Whether this process has the right to mount.
    package static let isPossible = (try? SmallDisk("size=1m")) != nil
    /// Why a test is skipped without the right to mount.
    package static let obstacle = "Mounting a small file system needs a right that this process lacks."
  }
#endif
