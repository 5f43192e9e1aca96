import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Users and permissions.

extension System {
  static var isSuperuser: Bool { geteuid() == 0 }

  private static let nobody: UInt32 = 65_534

  /// Drops the superuser's permissions permanently.
  static func becomeNobody() throws {
    guard setgroups(0, nil) == 0, setgid(nobody) == 0, setuid(nobody) == 0, geteuid() == nobody else {
      throw Skip(reason: "The superuser's permissions could not be dropped: \(SystemError(errno)).")
    }
  }

  /// Clears the umask, so that files keep the permissions with which this process creates them.
  static func clearUmask() { umask(0) }

  /// Whether the directory can be read.
  static func canRead(_ directory: URL) -> Bool { access(directory.systemPath, R_OK | X_OK) == 0 }

  /// Sets the permissions of a directory and of everything below it.
  static func setPermissions(of directory: URL, directories: mode_t, files: mode_t) throws {
    let contents = try DirectoryContents(of: directory).files
    // The deepest first, because a directory without permissions cannot be entered.
    for (path, bytes) in contents.sorted(by: { $0.key.count > $1.key.count }) {
      chmod(directory.appending(path: path).systemPath, bytes == nil ? directories : files)
    }
    chmod(directory.systemPath, directories)
  }

  /// The permissions of a file or directory. Nil for anything else, and if it does not exist.
  static func mode(of url: URL) -> (mode: mode_t, isDirectory: Bool)? {
    var status = stat()
    guard lstat(url.systemPath, &status) == 0 else { return nil }
    let kind = status.st_mode & mode_t(S_IFMT)
    guard kind == mode_t(S_IFDIR) || kind == mode_t(S_IFREG) else { return nil }
    return (status.st_mode & 0o7777, kind == mode_t(S_IFDIR))
  }

  /// Makes a file immutable, or mutable again. Not even the superuser can change, rename or remove an immutable file.
  ///
  /// - Throws: ``Skip`` if that is not possible.
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

  /// Whether a process that has opened a file before it was made immutable can still write to it, as in a file system
  /// in memory.
  ///
  /// - Throws: ``Skip`` if files cannot be made immutable.
  static func canWriteImmutableFiles(in directory: URL) throws -> Bool {
    let url = directory.appending(path: "immutable-\(UUID().uuidString)")
    let file = open(url.systemPath, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard file >= 0 else { throw StorageError.posix(errno, "Creating \(url.systemPath) failed") }
    defer {
      close(file)
      unlink(url.systemPath)
    }
    try setImmutable(true, url)
    let written = write(file, "x", 1)
    try setImmutable(false, url)
    return written == 1
  }

  /// Changes the owner of a directory, and of everything below it, to the user that ``becomeNobody()`` switches to.
  static func giveToNobody(_ directory: URL) throws {
    for url in try contents(of: directory) + [directory] {
      guard lchown(url.systemPath, nobody, nobody) == 0 else {
        throw StorageError.posix(errno, "Giving \(url.systemPath) to another user failed")
      }
    }
  }
}
