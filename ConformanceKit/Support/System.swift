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
    // The system names files by their true path, which `resolvingSymlinksInPath` does not give everywhere.
    guard let resolved = realpath(directory.systemPath, nil) else { return [] }
    defer { free(resolved) }
    let path = String(cString: resolved)
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
  /// The size in MiB of one that is filled up again and again.
  static let usualSize = 8

  let directory: URL

  /// Mounts one on the directory, which exists.
  ///
  /// - Throws: ``Skip`` where that is not possible.
  init(on directory: URL, mebibytes: Int) throws {
    self.directory = directory
    #if !canImport(Darwin)
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
    #if !canImport(Darwin)
      guard
        mount("tmpfs", directory.systemPath, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil)
          == 0
      else { throw Skip(reason: "Making a file system read-only failed: \(SystemError(errno)).") }
    #endif
  }

  /// Takes the file system away, at once if nobody uses it and else as soon as nobody does any more.
  func unmount() {
    #if !canImport(Darwin)
      umount2(directory.systemPath, Int32(MNT_DETACH))
    #endif
  }
}

// MARK: - For a process that belongs to a check alone

extension System {
  /// How many file descriptors the process has open.
  static var descriptorCount: Int { (0..<descriptorLimit).count { fcntl($0, F_GETFD) >= 0 } }

  /// No descriptor is as large as this.
  private static var descriptorLimit: Int32 { Int32(clamping: min(sysconf(Int32(_SC_OPEN_MAX)), 1 << 16)) }

  /// Makes every write that would make a file longer than this fail, with EFBIG.
  static func limitFileSize(to bytes: Int) throws {
    // Else the system would end the process.
    signal(SIGXFSZ, SIG_IGN)
    guard setFileSizeLimit(rlim_t(bytes)) else {
      throw Skip(reason: "The size of files could not be limited: \(SystemError(errno)).")
    }
  }

  /// Takes the limit away again.
  static func unlimitFileSize() { _ = setFileSizeLimit(nil) }

  private static func setFileSizeLimit(_ bytes: rlim_t?) -> Bool {
    #if canImport(Darwin) || canImport(Musl)
      setLimit(RLIMIT_FSIZE, to: bytes)
    #else
      setLimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), to: bytes)
    #endif
  }

  /// Sets how many descriptors the process can have, or as many as it may.
  @discardableResult static func limitDescriptors(to count: rlim_t?) -> Bool {
    #if canImport(Darwin) || canImport(Musl)
      setLimit(RLIMIT_NOFILE, to: count)
    #else
      setLimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), to: count)
    #endif
  }

  #if canImport(Darwin) || canImport(Musl)
    private typealias Resource = Int32
  #else
    private typealias Resource = __rlimit_resource_t
  #endif

  private static func setLimit(_ resource: Resource, to value: rlim_t?) -> Bool {
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0 else { return false }
    limit.rlim_cur = min(value ?? limit.rlim_max, limit.rlim_max)
    return setrlimit(resource, &limit) == 0
  }

  /// Gives up the superuser's permissions, for good.
  static func becomeNobody() throws {
    let nobody: UInt32 = 65_534
    guard setgroups(0, nil) == 0, setgid(nobody) == 0, setuid(nobody) == 0, geteuid() == nobody else {
      throw Skip(reason: "The superuser's permissions could not be given up: \(SystemError(errno)).")
    }
  }

  /// Whether the directory may be looked at.
  static func canRead(_ directory: URL) -> Bool { access(directory.systemPath, R_OK | X_OK) == 0 }

  /// Sets the permissions of everything below a directory, and of itself.
  static func setPermissions(of directory: URL, directories: mode_t, files: mode_t) throws {
    let contents = try DirectoryContents(of: directory).files
    // The deepest first, as one cannot get below what may not be entered.
    for (path, bytes) in contents.sorted(by: { $0.key.count > $1.key.count }) {
      chmod(directory.appending(path: path).systemPath, bytes == nil ? directories : files)
    }
    chmod(directory.systemPath, directories)
  }
}

/// Takes all file descriptors that a process can have but for some, until they are released.
final class DescriptorHold: Sendable {
  private let held: Guarded<[Int32]>

  init(leaving count: Int) throws {
    // More than a process has that does nothing else, and few enough to be taken quickly.
    guard System.limitDescriptors(to: 512) else {
      throw Skip(reason: "The number of file descriptors could not be limited: \(SystemError(errno)).")
    }
    var held: [Int32] = []
    while true {
      let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
      if descriptor < 0 { break }
      held.append(descriptor)
    }
    for descriptor in held.suffix(count) { close(descriptor) }
    self.held = Guarded(held.dropLast(count))
  }

  deinit { release() }

  func release() {
    let descriptors = held.withLock { held in
      defer { held = [] }
      return held
    }
    for descriptor in descriptors { close(descriptor) }
    System.limitDescriptors(to: nil)
  }
}

extension URL {
  /// The path as the system takes it.
  var systemPath: String { path(percentEncoded: false) }
}
