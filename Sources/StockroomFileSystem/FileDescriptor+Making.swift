#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

// The names of new files are synced at every durability, since a batch depends on the name of the journal.
extension FileDescriptor {
  func openOrMakeDirectory(
    _ name: String, _ permissions: FilePermissions, _ access: StorageAccess = .readWrite
  ) throws -> FileDescriptor {
    if let existing = try openDirectory(name) { return existing }
    guard access == .readWrite else {
      throw StorageError.posix(ENOENT, "Opening the directory \(path)/\(name) failed.")
    }
    if try makeDirectory(name, permissions) { try synchronizeNames() }
    guard let directory = try openDirectory(name) else { throw StorageError.directoryRemoved(path) }
    return directory
  }

  func openOrMakeFile(
    _ name: String, _ permissions: FilePermissions, _ access: StorageAccess = .readWrite
  ) throws -> FileDescriptor {
    let file: FileDescriptor
    if let existing = try openFile(name, access == .readWrite ? O_RDWR : O_RDONLY) {
      file = existing
    } else if access == .readOnly {
      throw StorageError.posix(ENOENT, "Opening \(path)/\(name) failed.")
    } else if let made = try makeFile(name, permissions) {
      try synchronizeNames()
      file = made
    } else {
      // Another process has just created it.
      guard let others = try openFile(name, O_RDWR) else { throw StorageError.directoryRemoved(path) }
      file = others
    }
    let status = try file.status()
    guard status.isRegularFile else { throw StorageError.notAFile(file.path) }
    guard status.linkCount <= 1 else {
      throw StorageError(
        .corrupted,
        "\(file.path) is the same file as another one, by a hard link, which writing here would change. Put a copy in "
          + "its place.")
    }
    return file
  }
}
