#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// Repeats a system call for as long as a signal interrupts it.
func retrying<Result: SignedInteger>(_ call: () -> Result) -> Result {
  while true {
    let result = call()
    if result >= 0 || errno != EINTR { return result }
  }
}

/// What `stat` says about a file.
struct FileStatus: Sendable {
  let isRegularFile: Bool
  let isDirectory: Bool
  let size: Int
  let modified: Timestamp
  /// When anything about the file or directory was changed, which nobody can set to another time.
  let changed: Timestamp
  /// How many names the file has.
  let linkCount: Int
  let identity: FileIdentity

  init(_ raw: stat) {
    isRegularFile = raw.st_mode & S_IFMT == S_IFREG
    isDirectory = raw.st_mode & S_IFMT == S_IFDIR
    size = Int(raw.st_size)
    #if canImport(Darwin)
      (modified, changed) = (Timestamp(raw.st_mtimespec), Timestamp(raw.st_ctimespec))
    #else
      (modified, changed) = (Timestamp(raw.st_mtim), Timestamp(raw.st_ctim))
    #endif
    linkCount = Int(raw.st_nlink)
    identity = FileIdentity(raw)
  }
}

extension Timestamp {
  /// No overflow for any time that a file system can store and a person would believe (until 2262).
  fileprivate init(_ time: timespec) {
    self.init(
      nanoseconds: Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000).partialValue
        &+ Int64(time.tv_nsec))
  }
}

/// Calls that Linux's C library has and Swift's import of it has not: found by name, once.
///
/// A statically linked program may not find them. It then does without: headers go to sidecar files, and every
/// file is synced by itself.
enum SystemCalls {
  #if canImport(Darwin)
    static func setAttribute(_ file: Int32, _ name: String, _ bytes: UnsafeRawBufferPointer) -> Int32 {
      fsetxattr(file, name, bytes.baseAddress, bytes.count, 0, 0) == 0 ? 0 : errno
    }

    static func attribute(_ file: Int32, _ name: String, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
      fgetxattr(file, name, bytes.baseAddress, bytes.count, 0, 0)
    }

    static let noAttribute = ENOATTR
    static let canSynchronizeFileSystem = false
    static func synchronizeFileSystem(_ file: Int32) -> Int32 { ENOTSUP }
  #else
    private typealias Set =
      @convention(c) (Int32, UnsafePointer<CChar>, UnsafeRawPointer?, Int, Int32) -> Int32
    private typealias Get = @convention(c) (Int32, UnsafePointer<CChar>, UnsafeMutableRawPointer?, Int) -> Int
    private typealias Sync = @convention(c) (Int32) -> Int32

    private static let set = function("fsetxattr", as: Set.self)
    private static let get = function("fgetxattr", as: Get.self)
    private static let sync = function("syncfs", as: Sync.self)

    private static func function<Function>(_ name: String, as type: Function.Type) -> Function? {
      // The handle of the program itself stays valid for as long as it runs.
      guard let program = dlopen(nil, RTLD_NOW), let address = dlsym(program, name) else { return nil }
      return unsafeBitCast(address, to: type)
    }

    /// Zero, or the number of the error.
    static func setAttribute(_ file: Int32, _ name: String, _ bytes: UnsafeRawBufferPointer) -> Int32 {
      guard let set else { return ENOTSUP }
      return set(file, name, bytes.baseAddress, bytes.count, 0) == 0 ? 0 : errno
    }

    /// The length of the attribute, or -1 with `errno` set.
    static func attribute(_ file: Int32, _ name: String, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
      guard let get else {
        errno = ENOTSUP
        return -1
      }
      return get(file, name, bytes.baseAddress, bytes.count)
    }

    /// What `errno` says when the file lacks the attribute.
    static let noAttribute = ENODATA
    static var canSynchronizeFileSystem: Bool { sync != nil }

    /// Writes everything on the file system to the disk. Zero, or the number of the error.
    static func synchronizeFileSystem(_ file: Int32) -> Int32 {
      guard let sync else { return ENOTSUP }
      return retrying { sync(file) } == 0 ? 0 : errno
    }
  #endif
}
