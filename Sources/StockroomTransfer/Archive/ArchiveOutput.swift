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

/// Where an archive is written to.
protocol ArchiveOutput: Sendable {
  /// Appends bytes.
  func append(_ bytes: UnsafeRawBufferPointer) throws
  /// Called once everything has been appended.
  func finish() throws
  /// Called instead if something has failed.
  func discard()
}

/// A file that is written under another name, and gets its own once it is complete and on the disk.
final class ArchiveFile: ArchiveOutput {
  private let directory: FileDescriptor
  private let name: String
  private let unfinished: String
  private let isReplacing: Bool
  private let file: FileDescriptor
  private let size = MutexProtected(0)

  /// - Parameter isReplacing: Whether a file of that name may be there, which is replaced.
  init(_ url: URL, replacing isReplacing: Bool) throws {
    guard url.isFileURL else { throw StorageError(.unsupported, "\(url) is not on a file system.") }
    let url = url.absoluteURL
    name = url.lastPathComponent
    guard !name.isEmpty, name != "/", name != "..", name != "." else {
      throw StorageError(.unsupported, "\(url.path(percentEncoded: false)) is not the name of a file.")
    }
    unfinished = ".\(name).partial-\(UUID().uuidString)"
    self.isReplacing = isReplacing
    directory = try FileDescriptor.openDirectory(
      atPath: FileManager.Directory(url: url.deletingLastPathComponent()).path)
    let path = directory.path(of: name)
    if let status = try directory.status(of: name), !(isReplacing && status.isRegularFile) {
      throw StorageError(.unsupported, "\(path) is there already, so no archive is written to it.")
    }
    guard let file = try directory.makeFile(unfinished, .owner) else {
      throw StorageError.posix(EEXIST, "Making \(directory.path(of: unfinished)) failed.")
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
    } else {
      try giveName()
    }
    try directory.synchronizeNames()
  }

  func discard() {
    // What cannot be removed is no archive all the same, and the error that matters is the first one.
    _ = try? directory.removeFile(unfinished)
  }

  /// Gives the file its name, unless there is one of that name by now.
  private func giveName() throws {
    let path = directory.path(of: name)
    if linkat(directory.number, unfinished, directory.number, name, 0) == 0 {
      try directory.removeFile(unfinished)
      return
    }
    let error = errno
    // Not every file system has hard links.
    guard error != EEXIST, try directory.status(of: name) == nil else {
      throw StorageError(.unsupported, "\(path) has been made by another program.")
    }
    guard [EPERM, ENOTSUP, EOPNOTSUPP, ENOSYS, EMLINK].contains(error) else {
      throw StorageError.posix(error, "Giving the archive the name \(path) failed.")
    }
    try rename()
  }

  private func rename() throws {
    guard try directory.rename(unfinished, to: name, in: directory) else {
      throw StorageError(
        .io, "The file that was to become \(directory.path(of: name)) has been removed by another program.")
    }
  }
}

/// A descriptor of the caller's, such as standard output.
final class ArchiveStream: ArchiveOutput {
  private let file: FileDescriptor

  init(descriptor: Int32) throws {
    let number = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
    guard number >= 0 else { throw StorageError.posix(errno, "Writing to descriptor \(descriptor) failed.") }
    file = FileDescriptor(owning: number, path: "descriptor \(descriptor)")
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws {
    var rest = bytes
    while !rest.isEmpty {
      #if canImport(Darwin)
        let count = retrying { Darwin.write(file.number, rest.baseAddress, rest.count) }
      #elseif canImport(Glibc)
        let count = retrying { Glibc.write(file.number, rest.baseAddress, rest.count) }
      #else
        let count = retrying { Musl.write(file.number, rest.baseAddress, rest.count) }
      #endif
      if count == 0 {
        throw StorageError(.diskFull, "Writing the archive to \(file.path) failed: it takes nothing more.")
      } else if count < 0 {
        guard errno == EAGAIN else {
          throw StorageError.posix(errno, "Writing the archive to \(file.path) failed.")
        }
        var wanted = pollfd(fd: file.number, events: Int16(POLLOUT), revents: 0)
        _ = poll(&wanted, 1, -1)
      } else {
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      }
    }
  }

  func finish() throws {}

  func discard() {}
}
