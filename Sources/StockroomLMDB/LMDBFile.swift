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

/// The file `data.mdb`, opened beside LMDB to learn which file it is and what it looks like.
///
/// Closing a descriptor of it takes no lock from LMDB, whose locks are on `lock.mdb`.
final class LMDBFile {
  /// Which file it is, by whatever path it was reached.
  struct Identity: Hashable, Sendable {
    let device: UInt64
    let number: UInt64

    init(_ status: stat) {
      device = UInt64(truncatingIfNeeded: status.st_dev)
      number = UInt64(truncatingIfNeeded: status.st_ino)
    }
  }

  private let descriptor: Int32
  private let path: String
  /// The path of the directory, without a slash at its end.
  let directory: String
  let identity: Identity

  /// Opens the file in the directory, and makes either if need be (rule O1).
  init(directory: FileManager.Directory) throws {
    try directory.create()
    self.directory = directory.path
    path = directory.path + "/data.mdb"
    var descriptor = systemOpen(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    if descriptor < 0 && errno == ENOENT {
      try Self.make(path, in: directory.path)
      descriptor = systemOpen(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    do {
      let status = try Self.status(of: descriptor, path: path)
      guard status.st_mode & S_IFMT == S_IFREG else {
        throw StorageError(.unsupported, "\(path) is no file.")
      }
      identity = Identity(status)
    } catch {
      systemClose(descriptor)
      throw error
    }
    self.descriptor = descriptor
  }

  deinit {
    // To close it would not do: a child between fork and exec has a copy, which would keep the lock.
    _ = flock(descriptor, LOCK_UN)
    systemClose(descriptor)
  }

  /// Keeps other processes from opening the database until the file is closed, and returns whether the path
  /// still leads to it.
  func lock() throws -> Bool {
    while flock(descriptor, LOCK_EX) != 0 {
      guard errno == EINTR else { throw StorageError.posix(errno, "Locking \(path) failed") }
    }
    var status = stat()
    return stat(path, &status) == 0 && Identity(status) == identity
  }

  /// Throws if LMDB must not be let near the file.
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`.
  func validateHeader() throws {
    // Another process may be in the middle of a commit. What is damaged stays so.
    for _ in 1..<4 {
      if (try? LMDBFileHeader.validate(fileDescriptor: descriptor, path: path)) != nil { return }
    }
    try LMDBFileHeader.validate(fileDescriptor: descriptor, path: path)
  }

  /// Makes the database in another directory and gives it its place when it is complete, so that an empty file is
  /// never a new database, but always one that was cut off (rule F2).
  private static func make(_ path: String, in directory: String) throws {
    let unfinished = "\(directory)/new-\(UUID().uuidString)"
    guard mkdir(unfinished, 0o777) == 0 else {
      throw StorageError.posix(errno, "Making the directory \(unfinished) failed")
    }
    let file = unfinished + "/data.mdb"
    defer {
      unlink(file)
      unlink(unfinished + "/lock.mdb")
      rmdir(unfinished)
    }
    systemClose(systemOpen(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC))
    try LMDBHandle.make(in: unfinished)
    try FileManager.Directory.name(file, path)
  }

  private static func status(of descriptor: Int32, path: String) throws -> stat {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw StorageError.posix(errno, "Examining \(path) failed") }
    return status
  }
}

// Under names that no method of a type with these calls can hide.

func systemOpen(_ path: String, _ flags: Int32) -> Int32 { open(path, flags, 0o644) }

func systemClose(_ descriptor: Int32) { _ = close(descriptor) }
