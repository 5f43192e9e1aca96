import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The directory of a database. Determines whether it belongs to this engine, and holds the lock that prevents a second
/// engine from opening it.
///
/// LevelDB treats every file with a name such as `5.log` or `LOG` as its own, and may rename or delete it. So the
/// database has its own directory in the directory of the engine, and LevelDB accesses it only when it is known to be
/// the engine's.
final class LevelDBDirectoryLock: Sendable {
  static let directoryName = "Stockroom.leveldb"
  /// Marks the directory as this engine's.
  static let identityName = "STOCKROOM"
  private static let identity = "Stockroom LevelDB database, layout 1"

  /// The directory with LevelDB's files. Its descriptor holds a lock on it.
  let files: LevelDBFiles
  /// A path that leads to this directory wherever it is moved, and nowhere once it is deleted, if the system
  /// supports such paths. LevelDB opens, creates and deletes files by their paths, in the background as well:
  /// with the directory's own path, it would do so in a database that has replaced this one in the meantime
  /// (rule C6).
  let libraryPath: String

  var path: String { files.path }

  /// Locks the directory, which is created if necessary.
  ///
  /// - Throws: `StorageError` with code `locked`, `unsupported`, `corrupted`, or the code of a system error.
  init(below directory: FileManager.Directory, permissions: FilePermissions) throws {
    try directory.validate()
    var status = stat()
    guard lstat(directory.path + "/CURRENT", &status) != 0 else {
      throw StorageError(
        .unsupported, "\(directory.path) is a LevelDB database of another program, and is left alone.")
    }
    let own = FileManager.Directory(
      url: directory.url.appending(path: Self.directoryName, directoryHint: .isDirectory))
    try own.create(permissions)
    let opened = try FileDescriptor.openDirectory(atPath: own.path, followsLink: false)
    files = LevelDBFiles(directory: opened, permissions: permissions)
    libraryPath = Self.boundPath(of: opened.number) ?? own.path
    try lock()
    try identify()
  }

  deinit {
    FileLock.release(files.descriptor)
    files.directory.release()
  }

  private static func boundPath(of descriptor: Int32) -> String? {
    var own = stat()
    guard fstat(descriptor, &own) == 0 else { return nil }
    #if canImport(Darwin)
      let path = "/.vol/\(UInt32(bitPattern: own.st_dev))/\(own.st_ino)"
    #else
      let path = "/proc/self/fd/\(descriptor)"
    #endif
    // Not every system supports these paths: there are containers without /proc, and file systems without /.vol.
    var found = stat()
    guard stat(path, &found) == 0, FileIdentity(found) == FileIdentity(own) else { return nil }
    return path
  }

  /// Waits while the engine that had the directory open is being released. The lock belongs to the descriptor,
  /// so it also excludes a second engine in this process.
  private func lock() throws {
    if try FileLock.tryAcquire(files.descriptor, path: path) { return }
    let end = ContinuousClock.now + FileLock.defaultTimeout
    while true {
      // Checked before the lock is tried again: a release ends only after the directory has been unlocked.
      let isBeingReleased = try LevelDBRelease.isInProgress(in: files)
      if try FileLock.tryAcquire(files.descriptor, path: path) { return }
      guard isBeingReleased, ContinuousClock.now < end else {
        throw StorageError(
          .locked, "The LevelDB database in \(path) is open elsewhere, in this process or in another one.")
      }
      usleep(500)
    }
  }

  private func identify() throws {
    let names = try files.names()
    guard names.contains(Self.identityName) else {
      guard names.allSatisfy({ $0.hasPrefix(Self.identityName + ".") }) else {
        throw StorageError(
          .unsupported, "\(path) contains files that this engine has not created, and is left alone.")
      }
      try files.replace(Self.identityName, with: Array(ChecksummedText.adding(to: Self.identity).utf8))
      return try files.synchronize()
    }
    let found = String(decoding: try files.read(Self.identityName, count: 256), as: UTF8.self)
    guard let identity = ChecksummedText.verifying(found) else {
      throw StorageError(.corrupted, "\(path)/\(Self.identityName) is corrupted.")
    }
    guard identity == Self.identity else {
      throw StorageError(
        .unsupported, "\(path) was made by another version of this engine: \(identity.debugDescription).")
    }
  }
}
