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

extension FileManager.Directory {
  /// The path as system calls take it.
  package var path: String { url.path(percentEncoded: false) }

  /// Makes the directory and those above it, as far as they are missing (rules O1, O2).
  ///
  /// - Throws: ``StorageError`` that names the first path in the way.
  package func create() throws {
    guard url.isFileURL else { throw StorageError(.unsupported, "\(url) is not on a file system.") }
    try Self.make(path, withParents: true)
  }

  /// Waits until the names in a directory are on disk.
  package static func sync(_ path: String) throws {
    let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Opening the directory \(path) failed.") }
    defer { close(descriptor) }
    // Some file systems cannot sync a directory, and say so with EINVAL; there is nothing more to do there.
    guard fsync(descriptor) == 0 || errno == EINVAL else {
      throw StorageError.posix(errno, "Syncing the directory \(path) failed.")
    }
  }

  private static func make(_ path: String, withParents: Bool) throws {
    if mkdir(path, 0o777) == 0 { return }
    let failure = errno
    if failure == EEXIST {
      var status = stat()
      guard stat(path, &status) == 0 else { throw StorageError.posix(errno, "Looking at \(path) failed.") }
      guard status.st_mode & S_IFMT == S_IFDIR else {
        throw StorageError.posix(ENOTDIR, "\(path) is in the way of a directory.")
      }
      return
    }
    let parent = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
    guard failure == ENOENT, withParents, parent.count < path.count else {
      throw StorageError.posix(failure, "Making the directory \(path) failed.")
    }
    try make(parent, withParents: true)
    try make(path, withParents: false)
  }
}
