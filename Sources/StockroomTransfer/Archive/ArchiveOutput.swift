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

/// The destination of an archive.
protocol ArchiveOutput: Sendable {
  /// Appends bytes.
  func append(_ bytes: UnsafeRawBufferPointer) throws
  /// Called once everything has been appended.
  func finish() throws
  /// Called instead if an error has occurred.
  func discard()
}

/// A file that is written under a temporary name, and renamed once it is complete and on the disk.
final class ArchiveFile: ArchiveOutput {
  private let directory: FileDescriptor
  private let name: String
  private let unfinished: String
  private let isReplacing: Bool
  private let file: FileDescriptor
  private let size = MutexProtected(0)

  /// - Parameter isReplacing: Whether an existing file of that name is replaced.
  init(_ url: URL, replacing isReplacing: Bool) throws {
    try url.requireFileSystem()
    let url = url.absoluteURL
    name = url.lastPathComponent
    guard !name.isEmpty, name != "/", name != "..", name != "." else {
      throw StorageError(.unsupported, "\(url.path(percentEncoded: false)) is not the name of a file.")
    }
    unfinished = FileManager.Directory.unfinishedName(of: name)
    self.isReplacing = isReplacing
    directory = try FileDescriptor.openDirectory(
      atPath: FileManager.Directory(url: url.deletingLastPathComponent()).path)
    let path = directory.path(of: name)
    if let status = try directory.status(of: name), !(isReplacing && status.isRegularFile) {
      throw StorageError(.unsupported, "\(path) already exists, so no archive is written to it.")
    }
    guard let file = try directory.makeFile(unfinished, .owner) else {
      throw StorageError.posix(EEXIST, "Creating \(directory.path(of: unfinished)) failed.")
    }
    self.file = file
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws {
    try size.withLock { size in
      try file.write(bytes, at: size)
      size += bytes.count
    }
  }

  func finish() throws {
    try file.synchronize()
    if isReplacing {
      try rename()
      return try directory.synchronizeNames()
    }
    try giveName()
    do {
      try directory.synchronizeNames()
    } catch {
      // No archive may remain for which an error was reported.
      _ = try? directory.removeFile(name)
      throw error
    }
  }

  func discard() {
    // A file that cannot be removed is not an archive, and the first error is the one that matters.
    _ = try? directory.removeFile(unfinished)
  }

  /// Renames the file, unless there is a file of that name by now.
  private func giveName() throws {
    let path = directory.path(of: name)
    if linkat(directory.number, unfinished, directory.number, name, 0) == 0 {
      do { try directory.removeFile(unfinished) } catch {
        _ = try? directory.removeFile(name)
        throw error
      }
      return
    }
    let error = errno
    guard [EEXIST, EPERM, ENOTSUP, EOPNOTSUPP, ENOSYS, EMLINK].contains(error) else {
      throw StorageError.posix(error, "Giving the archive the name \(path) failed.")
    }
    // Not every file system has hard links. In that case, an empty file reserves the name until it is
    // replaced; it remains if the process dies in between.
    guard error != EEXIST, try directory.makeFile(name, .owner) != nil else {
      throw StorageError(.unsupported, "\(path) was created by another program.")
    }
    do {
      try rename()
    } catch {
      _ = try? directory.removeFile(name)
      throw error
    }
  }

  private func rename() throws {
    guard try directory.rename(unfinished, to: name, in: directory) else {
      throw StorageError(
        .io, "The file that was to become \(directory.path(of: name)) has been removed by another program.")
    }
  }
}

/// A descriptor of the caller, such as standard output.
final class ArchiveStream: ArchiveOutput {
  private let file: FileDescriptor
  /// Once it is set, waiting for the reader throws `CancellationError`.
  private let flag: CancellationFlag
  /// The number of bytes that are written at a time.
  private let portion: Int

  init(descriptor: Int32, _ flag: CancellationFlag) throws {
    file = try FileDescriptor(duplicating: descriptor)
    self.flag = flag
    portion = try file.status().isRegularFile ? .max : FileDescriptor.portionWithoutWaiting
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws {
    var rest = bytes
    while !rest.isEmpty {
      try file.wait(for: POLLOUT, flag)
      let size = min(rest.count, portion)
      #if canImport(Darwin)
        let count = retrying { Darwin.write(file.number, rest.baseAddress, size) }
      #elseif canImport(Glibc)
        let count = retrying { Glibc.write(file.number, rest.baseAddress, size) }
      #else
        let count = retrying { Musl.write(file.number, rest.baseAddress, size) }
      #endif
      if count == 0 {
        throw StorageError(.diskFull, "Writing the archive \(file.path) failed: it accepts no more bytes.")
      } else if count < 0 {
        guard errno == EAGAIN else {
          throw StorageError.posix(errno, "Writing the archive \(file.path) failed.")
        }
      } else {
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      }
    }
  }

  func finish() throws {}

  func discard() {}
}
