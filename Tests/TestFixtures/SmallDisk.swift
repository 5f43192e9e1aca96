#if os(Linux)
  package import Foundation
  import Glibc
  package import StockroomCore

  /// A file system in memory, unmounted when the last reference to it goes. Needs the right to mount.
  package final class SmallDisk: Sendable {
    private let mountPoint: TemporaryDirectory

    /// - Parameters:
    ///   - options: What `mount` takes after `-o`: `size=4m`, `nr_inodes=40`.
    ///   - type: `tmpfs`, or `ramfs`, which has no extended attributes.
    package init(_ options: String = "", type: String = "tmpfs", isReadOnly: Bool = false) throws {
      mountPoint = try TemporaryDirectory()
      let path = mountPoint.url.path(percentEncoded: false)
      guard mount(type, path, type, isReadOnly ? UInt(MS_RDONLY) : 0, options) == 0 else {
        throw StorageError.posix(errno, "Mounting a file system on \(path) failed.")
      }
    }

    deinit { umount2(url.path(percentEncoded: false), Int32(MNT_DETACH)) }

    /// Where it is mounted.
    package var url: URL { mountPoint.url }

    /// A directory on it for an engine, which makes it.
    package var directory: FileManager.Directory { FileManager.Directory(url: url.appending(path: "store")) }

    /// Refuses writes from now on. No file may be open for writing.
    package func makeReadOnly() throws {
      let path = url.path(percentEncoded: false)
      let end = ContinuousClock.now + .seconds(60)
      while mount("", path, "", UInt(MS_REMOUNT | MS_RDONLY), nil) != 0 {
        // A process that another test starts has copies of all descriptors until its program runs.
        guard errno == EBUSY, ContinuousClock.now < end else {
          throw StorageError.posix(errno, "Making \(path) read-only failed.")
        }
        sched_yield()
      }
    }

    /// Takes all the room but some bytes.
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

    /// Takes some bytes of the room.
    package func fill(_ count: Int) throws { try Data(count: count).write(to: ballast) }

    /// Gives the room back that the disk was filled with.
    package func makeRoom() throws {
      // A process that is just being started, by another test, may have inherited the file, which then keeps its room.
      try FileHandle(forWritingTo: ballast).truncate(atOffset: 0)
      try FileManager.default.removeItem(at: ballast)
    }

    private var ballast: URL { url.appending(path: "ballast") }

    /// Whether this process may mount.
    package static let isPossible = (try? SmallDisk("size=1m")) != nil
    /// Why a test does without, where it may not.
    package static let obstacle = "Mounting a small file system needs a right that this process lacks."
  }
#endif
