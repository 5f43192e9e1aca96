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

/// What the kit asks of the operating system.
enum System {
  static var isSuperuser: Bool { geteuid() == 0 }

  /// Holds the calling thread, which must be none of the cooperative pool's.
  static func pauseThread(milliseconds: Int) {
    usleep(UInt32(milliseconds * 1000))
  }

  /// How long the processors have worked for this process.
  static var processorTime: Duration {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
  }

  /// The files inside a directory that this process has open.
  static func openFiles(in directory: URL) -> [String] {
    // The system names files by their true path.
    let path = directory.resolvingSymlinksInPath().systemPath
    #if canImport(Darwin)
      let paths = (0..<getdtablesize()).compactMap { descriptor -> String? in
        var buffer = [CChar](repeating: 0, count: Int(MAXPATHLEN))
        guard fcntl(descriptor, F_GETPATH, &buffer) == 0 else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
      }
    #else
      let list = "/proc/self/fd"
      // A descriptor may be closed between the list and the look at it, which is not an error.
      let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: list)) ?? []
      let paths = descriptors.compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "\(list)/\($0)")
      }
    #endif
    return paths.filter { $0.hasPrefix(path) }.sorted()
  }
}

/// A small file system of the check's own, to be filled up or made read-only.
struct SmallFileSystem: Sendable {
  let directory: URL

  /// Mounts one on the directory, which exists.
  ///
  /// - Throws: ``Skip`` where that is not possible.
  init(on directory: URL, mebibytes: Int) throws {
    self.directory = directory
    #if os(Linux)
      guard System.isSuperuser else {
        throw Skip(reason: "Mounting a small file system needs the superuser.")
      }
      guard mount("tmpfs", directory.systemPath, "tmpfs", 0, "size=\(mebibytes)m") == 0 else {
        throw Skip(reason: "Mounting a small file system failed: \(SystemError(errno)).")
      }
    #else
      throw Skip(reason: "The kit can make a small file system on Linux only.")
    #endif
  }

  /// Lets nobody write any more. Nobody may have a file open for writing.
  func makeReadOnly() throws {
    #if os(Linux)
      guard
        mount("tmpfs", directory.systemPath, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil)
          == 0
      else { throw Skip(reason: "Making a file system read-only failed: \(SystemError(errno)).") }
    #endif
  }

  /// Takes the file system away, at once if nobody uses it and else as soon as nobody does any more.
  func unmount() {
    #if os(Linux)
      umount2(directory.systemPath, Int32(MNT_DETACH))
    #endif
  }
}

extension URL {
  /// The path as the system takes it.
  var systemPath: String { path(percentEncoded: false) }
}
