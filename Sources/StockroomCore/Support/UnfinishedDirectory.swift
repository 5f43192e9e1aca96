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

/// A directory next to a file that is being made, in which it is complete before it gets its name.
///
/// Its process holds a lock on it as long as it is in use, by which others determine whether that has died. On a file
/// system without such locks nobody removes it.
package struct UnfinishedDirectory: Sendable {
  private let directory: FileDescriptor
  package var path: String { directory.path }

  /// Creates a directory for the file with this absolute path. ``remove(_:)`` must follow.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init(for file: String) throws {
    while true {
      if let made = try Self.make("\(file)\(Self.infix)\(UUID().uuidString)") {
        directory = made
        return
      }
    }
  }

  /// Nil if another process has taken the directory for abandoned before it was locked.
  private static func make(_ path: String) throws -> FileDescriptor? {
    let mode = mode_t(FilePermissions.owner.directoryMode)
    guard mkdir(path, mode) == 0 else {
      throw StorageError.posix(errno, "Making the directory \(path) failed.")
    }
    do {
      // Regardless of the process's umask.
      guard chmod(path, mode) == 0 else {
        throw StorageError.posix(errno, "Setting the permissions of \(path) failed.")
      }
      let directory = try FileDescriptor.openDirectory(atPath: path, followsLink: false)
      return try isLocked(directory) ? directory : nil
    } catch {
      guard rmdir(path) != 0, errno == ENOENT else { throw error }
      return nil
    }
  }

  /// Locks the directory, and returns whether it is still there for its maker.
  private static func isLocked(_ directory: FileDescriptor) throws -> Bool {
    do {
      guard try FileLock.tryAcquire(directory.number, path: directory.path) else { return false }
    } catch {
      return true
    }
    return try FileIdentity(path: directory.path) == directory.status().identity
  }

  /// Removes the directory, with the files of these names in it.
  package func remove(_ names: [String]) {
    Self.remove(names, in: directory)
    FileLock.release(directory.number)
    directory.release()
  }

  /// Removes the directories for a file whose process has died, with the files of these names in them. What cannot be
  /// removed only takes space.
  ///
  /// Costs listing the directory of the file.
  package static func removeAbandoned(for file: String, _ names: [String]) {
    let url = URL(filePath: file)
    let (parent, prefix) = (url.deletingLastPathComponent(), url.lastPathComponent + infix)
    var found: [String] = []
    try? FileDescriptor.openDirectory(atPath: parent.path(percentEncoded: false)).forEachName { name, _ in
      let name = String(cString: name)
      if name.hasPrefix(prefix), UUID(uuidString: String(name.dropFirst(prefix.count))) != nil {
        found.append(name)
      }
    }
    for name in found {
      let path = parent.appending(path: name).path(percentEncoded: false)
      guard let directory = try? FileDescriptor.openDirectory(atPath: path, followsLink: false),
        (try? FileLock.tryAcquire(directory.number, path: path)) == true
      else { continue }
      remove(names, in: directory)
      FileLock.release(directory.number)
    }
  }

  private static func remove(_ names: [String], in directory: FileDescriptor) {
    for name in names { _ = unlinkat(directory.number, name, 0) }
    rmdir(directory.path)
  }

  private static let infix = "-new-"
}
