import Foundation
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

  /// Says something on standard error, where no report is.
  static func note(_ text: String) {
    let line = Array("ConformanceKit: \(text)\n".utf8)
    // Nobody can be told that nobody can be told.
    _ = write(STDERR_FILENO, line, line.count)
  }

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

  /// How long a processor has worked for the calling thread.
  static var threadProcessorTime: Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
  }

  /// What ``timeOnRunQueue(_:)`` needs. Nil where the system does not tell.
  static func openThreadStatistics() -> Int32? {
    let file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)
    return file < 0 ? nil : file
  }

  /// How long the thread that has opened the statistics was ready to compute while others did.
  static func timeOnRunQueue(_ statistics: Int32?) -> Duration {
    guard let statistics else { return .zero }
    var bytes = [UInt8](repeating: 0, count: 96)
    let count = pread(statistics, &bytes, bytes.count, 0)
    // The time that it computed, the time that it was ready to, and how often, in nanoseconds.
    let numbers = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: " ")
    return .nanoseconds(numbers.count > 1 ? Int64(numbers[1]) ?? 0 : 0)
  }

  static func closeFile(_ descriptor: Int32) { close(descriptor) }

  /// Copies a directory with the extended attributes of the files in it.
  ///
  /// - Throws: `StorageError` that names the copy.
  static func copy(_ directory: URL, to copy: URL) throws {
    #if canImport(Darwin)
      try FileManager.default.copyItem(at: directory, to: copy)
    #else
      // FileManager copies attributes on Apple's systems only.
      let process = Process()
      process.executableURL = URL(filePath: "/bin/cp")
      process.arguments = ["-a", directory.systemPath, copy.systemPath]
      try process.run()
      process.waitUntilExit()
      guard process.terminationStatus == 0 else {
        throw StorageError(.io, "Copying \(directory.path) to \(copy.path) failed.")
      }
    #endif
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

  private static let nobody: UInt32 = 65_534

  /// Gives up the superuser's permissions, for good.
  static func becomeNobody() throws {
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

// MARK: - Files

extension System {
  /// Everything below a directory, whatever it is.
  static func contents(of directory: URL) throws -> [URL] {
    try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath).map {
      directory.appending(path: $0)
    }
  }

  /// A directory and all that are below it.
  static func directories(in directory: URL) throws -> [URL] {
    try [directory] + contents(of: directory).filter { mode(of: $0)?.isDirectory == true }
  }

  /// The permissions of a file or directory. Nil for what is neither, or not there any more.
  static func mode(of url: URL) -> (mode: mode_t, isDirectory: Bool)? {
    var status = stat()
    guard lstat(url.systemPath, &status) == 0 else { return nil }
    let kind = status.st_mode & mode_t(S_IFMT)
    guard kind == mode_t(S_IFDIR) || kind == mode_t(S_IFREG) else { return nil }
    return (status.st_mode & 0o7777, kind == mode_t(S_IFDIR))
  }

  static func makeLink(at url: URL, to target: URL) throws {
    guard symlink(target.systemPath, url.systemPath) == 0 else {
      throw StorageError.posix(errno, "Making the link \(url.systemPath) failed")
    }
  }

  static func makeFIFO(_ url: URL) throws {
    guard mkfifo(url.systemPath, 0o600) == 0 else {
      throw StorageError.posix(errno, "Making the FIFO \(url.systemPath) failed")
    }
  }

  /// Lets those go on who wait for somebody else to open a FIFO.
  static func release(_ url: URL) {
    let file = open(url.systemPath, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    if file >= 0 { close(file) }
  }

  /// Lets nobody change, rename or remove a file, not even the superuser, or takes that back.
  ///
  /// - Throws: ``Skip`` where that is not possible.
  static func setImmutable(_ isImmutable: Bool, _ url: URL) throws {
    #if canImport(Darwin)
      let result = chflags(url.systemPath, isImmutable ? UInt32(UF_IMMUTABLE) : 0)
    #else
      // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_IMMUTABLE_FL of linux/fs.h.
      let (get, set, immutable): (UInt, UInt, Int) = (0x8008_6601, 0x4008_6602, 0x10)
      let file = open(url.systemPath, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      defer { if file >= 0 { close(file) } }
      var flags = 0
      var result = file < 0 ? -1 : ioctl(file, .init(get), &flags)
      if result == 0 {
        flags = isImmutable ? flags | immutable : flags & ~immutable
        result = ioctl(file, .init(set), &flags)
      }
    #endif
    guard result == 0 else {
      throw Skip(reason: "Files cannot be made immutable here: \(SystemError(errno)).")
    }
  }

  /// Whether this process writes to the file through memory.
  static func isMappedForWriting(_ url: URL) -> Bool {
    guard let resolved = realpath(url.systemPath, nil) else { return false }
    defer { free(resolved) }
    let path = String(cString: resolved)
    let maps = (try? String(contentsOfFile: "/proc/self/maps", encoding: .utf8)) ?? ""
    return maps.split(whereSeparator: \.isNewline).contains { $0.hasSuffix(path) && $0.contains(" rw-s ") }
  }

  /// Gives everything below a directory, and itself, to the user that ``becomeNobody()`` makes of this process.
  static func giveToNobody(_ directory: URL) throws {
    for url in try contents(of: directory) + [directory] {
      guard lchown(url.systemPath, nobody, nobody) == 0 else {
        throw StorageError.posix(errno, "Giving \(url.systemPath) to another user failed")
      }
    }
  }

  /// Takes every lock that can be taken through a descriptor for reading, if nobody else has it. Gives the descriptor,
  /// which holds the locks; nil for what is no file.
  static func lockForReading(_ url: URL) -> Int32? {
    guard mode(of: url)?.isDirectory == false else { return nil }
    let file = open(url.systemPath, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    _ = flock(file, LOCK_EX | LOCK_NB)
    var region = flock()
    region.l_type = Int16(F_RDLCK)
    region.l_whence = Int16(SEEK_SET)
    _ = fcntl(file, F_SETLK, &region)
    return file
  }

  /// What the process has read, and touched of its memory, until now.
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

/// Takes all file descriptors that a process can have but for some, until they are released.
final class DescriptorHold: Sendable {
  private let held: MutexProtected<[Int32]>

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
    self.held = MutexProtected(held.dropLast(count))
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
