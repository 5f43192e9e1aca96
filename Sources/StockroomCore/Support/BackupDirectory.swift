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

/// A directory that is filled under a temporary name, and renamed once it is complete.
package struct BackupDirectory: Sendable {
  private let target: String
  private let name: String
  private let parent: String
  /// The path at which it is filled.
  private let unfinished: String
  private let unfinishedName: String

  /// Creates the complete directory at the path, or nothing.
  ///
  /// - Parameters:
  ///   - synchronizeName: Syncs the name of the directory, the first path, in its parent, the second.
  ///   - fill: Fills the directory that is passed to it. The contents of its files are on the disk when it
  ///     returns.
  /// - Throws: ``StorageError`` with code `unsupported` if the path exists and is not an empty directory; what `fill` throws.
  package static func make(
    at directory: FileManager.Directory,
    synchronizeName: @escaping @Sendable (String, String) throws -> Void = {
      try FileManager.Directory.syncNew($0, in: $1)
    },
    fill: (FileManager.Directory) async throws -> Void
  ) async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let backup = try await thread.run { try BackupDirectory(for: directory) }
    do {
      try await fill(
        FileManager.Directory(url: URL(filePath: backup.unfinished, directoryHint: .isDirectory)))
      try Task.checkCancellation()
      try await thread.run { try backup.finish(synchronizeName) }
    } catch {
      // A directory that cannot be removed is not a backup, and the first error is the one that matters.
      try? await thread.run { try FileManager.default.removeItem(atPath: backup.unfinished) }
      throw backup.naming(error)
    }
  }

  private init(for directory: FileManager.Directory) throws {
    try directory.validate()
    target = directory.path
    let url = URL(filePath: target)
    let parent = url.deletingLastPathComponent()
    self.parent = parent.path(percentEncoded: false)
    name = url.lastPathComponent
    unfinishedName = FileManager.Directory.unfinishedName(of: name)
    unfinished = parent.appending(path: unfinishedName).path(percentEncoded: false)
    try FileManager.Directory(url: parent).create()
    try refuseContents()
    guard mkdir(unfinished, mode_t(FilePermissions.owner.directoryMode)) == 0 else {
      throw StorageError.posix(errno, "Creating the directory \(unfinished) failed.")
    }
  }

  private func refuseContents() throws {
    guard let status = try FileStatus(atPath: target) else { return }
    guard status.isDirectory else { throw isInTheWay }
    try FileDescriptor.openDirectory(atPath: target).forEachName { _, _ in throw isInTheWay }
  }

  private func finish(_ synchronizeName: (String, String) throws -> Void) throws {
    try FileManager.Directory.sync(unfinished)
    // Replaces an empty directory, but nothing else.
    guard rename(unfinished, target) == 0 else {
      if [ENOTEMPTY, EEXIST, ENOTDIR].contains(errno) { throw isInTheWay }
      throw StorageError.posix(errno, "Renaming \(unfinished) to \(target) failed.")
    }
    do {
      try synchronizeName(target, parent)
    } catch {
      // Renames it back, since the caller removes the directory under its temporary name.
      guard rename(target, unfinished) == 0 else {
        throw StorageError(
          .io,
          "The backup is in \(target), and complete, but may be gone after a power cut: that it is there could not be "
            + "brought to the disk.", underlying: error)
      }
      throw error
    }
  }

  /// The error with the path of the call, instead of the temporary one.
  private func naming(_ error: any Error) -> any Error {
    guard var error = error as? StorageError else { return error }
    error.message.replace(unfinishedName, with: name)
    return error
  }

  private var isInTheWay: StorageError {
    StorageError(.unsupported, "\(target) is not an empty directory, so no backup is made there.")
  }
}
