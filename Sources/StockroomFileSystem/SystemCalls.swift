#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// Functions of Linux's C library that Swift does not import. They are looked up by name, once.
///
/// A statically linked program may not find them. It then works without them: metadata go to sidecar files,
/// and every file is synced separately.
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
      // The handle of the program itself stays valid as long as it runs.
      guard let program = dlopen(nil, RTLD_NOW), let address = dlsym(program, name) else { return nil }
      return unsafeBitCast(address, to: type)
    }

    /// Returns zero, or the number of the error.
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

    /// The value of `errno` if the file lacks the attribute.
    static let noAttribute = ENODATA
    static var canSynchronizeFileSystem: Bool { sync != nil }

    /// Syncs everything on the file system. Returns zero, or the number of the error.
    static func synchronizeFileSystem(_ file: Int32) -> Int32 {
      guard let sync else { return ENOTSUP }
      return retrying { sync(file) } == 0 ? 0 : errno
    }
  #endif
}
