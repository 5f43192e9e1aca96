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

/// A directory next to the path of a new file. The file is created in it, and moved to its path once it is complete.
///
/// While the directory is in use, its process holds a lock on a file in it, by which other processes determine whether that
/// process has died. On a file system without locks, an abandoned directory is not removed.
package struct UnfinishedDirectory: Sendable {
  private let directory: FileDescriptor
  /// A file, since some file systems that several machines share support locks on files, but not on directories.
  private let lock: FileDescriptor
  package var path: String { directory.path }

  /// Creates a directory for the file with this absolute path. ``remove(_:)`` must follow.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init(for file: String) throws {
    while true {
      if let made = try Self.make("\(file)\(Self.infix)\(UUID().uuidString)") {
        self = made
        return
      }
    }
  }

  /// Nil if another process has removed the directory as abandoned before it was locked.
  private static func make(_ path: String) throws -> UnfinishedDirectory? {
    let mode = mode_t(FilePermissions.owner.directoryMode)
    guard mkdir(path, mode) == 0 else {
      throw StorageError.posix(errno, "Creating the directory \(path) failed.")
    }
    do {
      try FileManager.Directory.setMode(mode, ofNew: path)
      let directory = try FileDescriptor.openDirectory(atPath: path, followsLink: false)
      guard let lock = try FileDescriptor.makeFile(atPath: lockPath(in: path), .owner),
        try isLocked(lock)
      else { return nil }
      return UnfinishedDirectory(directory: directory, lock: lock)
    } catch {
      unlink(lockPath(in: path))
      guard rmdir(path) != 0, errno == ENOENT else { throw error }
      return nil
    }
  }

  private init(directory: FileDescriptor, lock: FileDescriptor) {
    (self.directory, self.lock) = (directory, lock)
  }

  /// Locks the file. Returns false if another process has removed the directory as abandoned, or is removing it.
  private static func isLocked(_ lock: FileDescriptor) throws -> Bool {
    do {
      guard try FileLock.tryAcquire(lock.number, path: lock.path) else { return false }
    } catch {
      return true
    }
    return try FileIdentity(path: lock.path) == lock.status().identity
  }

  /// Removes the directory, with the files of these names in it.
  package func remove(_ names: [String]) {
    Self.remove(names, in: directory)
    FileLock.release(lock.number)
    lock.release()
    directory.release()
  }

  /// Removes the directories for a file whose process has died, with the files of these names in them. Directories that cannot be
  /// removed only take space.
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
      guard let directory = try? FileDescriptor.openDirectory(atPath: path, followsLink: false) else {
        continue
      }
      do {
        guard let lock = try FileDescriptor.openFile(atPath: lockPath(in: path)) else {
          // Its process has died before it created the file, or creates another directory if this one is gone.
          rmdir(path)
          continue
        }
        guard try FileLock.tryAcquire(lock.number, path: lock.path) else { continue }
        remove(names, in: directory)
        FileLock.release(lock.number)
      } catch {
        // It may be in use.
      }
    }
  }

  private static func remove(_ names: [String], in directory: FileDescriptor) {
    for name in names + [lockName] { _ = unlinkat(directory.number, name, 0) }
    rmdir(directory.path)
  }

  private static func lockPath(in path: String) -> String { "\(path)/\(lockName)" }

  private static let infix = "-new-"
  private static let lockName = "lock"
}
