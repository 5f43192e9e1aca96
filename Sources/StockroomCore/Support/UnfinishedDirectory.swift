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
/// Its process holds a lock on a file in it as long as it is in use, by which others determine whether that has died. On a
/// file system without such locks nobody removes it.
package struct UnfinishedDirectory: Sendable {
  private let directory: FileDescriptor
  /// Some file systems have locks on files that other machines see, and none on directories.
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

  /// Nil if another process has taken the directory for abandoned before it was locked.
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

  /// Locks the file, and returns whether the directory is still there for its maker.
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
      guard let directory = try? FileDescriptor.openDirectory(atPath: path, followsLink: false) else {
        continue
      }
      do {
        guard let lock = try FileDescriptor.openFile(atPath: lockPath(in: path)) else {
          // Its maker has died before it made a file, or makes another directory if it does not find this one.
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
