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

/// A copy of an SQLite database with its journals, in its own directory. Removed with the last reference.
///
/// Opening a database in place would change it: the contents of a write-ahead log or a hot journal are moved
/// into the database, and the files beside it are created and removed. With the option that prevents that,
/// `immutable`, SQLite ignores both, and their contents would be missing. In a copy, SQLite may change
/// anything.
final class DatabaseCopy: Sendable {
  /// The suffixes of the files that SQLite may have beside a database. The shared memory is created from the
  /// log.
  private static let suffixes = ["", "-wal", "-journal"]
  private static let attempts = 5

  /// The path of the copy.
  let file: String
  private let directory: String

  /// Copies the database at the path, which may be a symbolic link.
  ///
  /// - Throws: `StorageError` with code `corrupted` if it is not a database, `unsupported` if it is not a
  ///   file, `locked` if another program keeps writing to it, `io` or `permissionDenied`;
  ///   `CancellationError`.
  init(of path: String, _ flag: CancellationFlag) throws {
    let original = try Self.findDatabase(at: path)
    directory = try Self.makeTemporaryDirectory()
    file = directory + "/copy.sqlite3"
    do {
      for _ in 0..<Self.attempts {
        if try Self.copyAll(original, to: file, flag) { return }
      }
      throw StorageError(
        .locked, "Another program keeps writing to \(path). Quit that first, then import it.")
    } catch {
      remove()
      throw error
    }
  }

  deinit { remove() }

  private func remove() {
    for suffix in Self.suffixes + ["-shm"] { unlink(file + suffix) }
    rmdir(directory)
  }

  private static func makeTemporaryDirectory() throws -> String {
    let parent = FileManager.default.temporaryDirectory.path(percentEncoded: false)
    // SQLite is opened so that it follows no symbolic link.
    guard let resolved = realpath(parent, nil) else {
      throw StorageError.posix(errno, "Looking for the temporary directory \(parent) failed.")
    }
    defer { free(resolved) }
    let path = "\(String(cString: resolved))/stockroom-import-\(UUID().uuidString)"
    guard mkdir(path, 0o700) == 0 else {
      throw StorageError.posix(errno, "Creating the directory \(path) failed.")
    }
    return path
  }

  /// The path of the database without symbolic links.
  private static func findDatabase(at path: String) throws -> String {
    guard let (file, status) = try FileDescriptor.openRegularFile(following: path) else {
      throw StorageError(.unsupported, "\(path) is not a file, so it is not an SQLite database.")
    }
    guard try file.readBytes(16) == Array("SQLite format 3\0".utf8) else {
      throw StorageError(.corrupted, "\(path), a file of \(status.size) bytes, is not an SQLite database.")
    }
    return file.path
  }

  /// Copies the files. Returns false if one of them changed in the meantime, so that they may not belong
  /// together.
  private static func copyAll(_ original: String, to copy: String, _ flag: CancellationFlag) throws -> Bool {
    let before = try suffixes.map { try FileVersion(atPath: original + $0) }
    for (suffix, version) in zip(suffixes, before) {
      unlink(copy + suffix)
      guard let version else { continue }
      guard version.isRegularFile else {
        throw StorageError(
          .unsupported, "\(original + suffix) is not a file, so it cannot be part of a database.")
      }
      guard let source = try FileDescriptor.openFile(atPath: original + suffix, O_RDONLY),
        let target = try FileDescriptor.makeFile(atPath: copy + suffix, .owner)
      else { return false }
      if suffix == "-journal" { try refuseSuperJournal(source, size: version.size) }
      try copyBytes(of: source, to: target, flag)
    }
    return try before == suffixes.map { try FileVersion(atPath: original + $0) }
  }

  private static func copyBytes(
    of source: FileDescriptor, to target: FileDescriptor, _ flag: CancellationFlag
  ) throws {
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    var offset = 0
    while case let count = try buffer.withUnsafeMutableBytes({ try source.read(into: $0, at: offset) }),
      count > 0
    {
      try flag.check()
      try buffer.withUnsafeBytes {
        try target.write(UnsafeRawBufferPointer(rebasing: $0[..<count]), at: offset)
      }
      offset += count
    }
  }

  /// Throws if a journal ends with the path of another file, like that of a transaction on several databases:
  /// SQLite would remove that file when it rolls back, wherever it is.
  /// https://sqlite.org/fileformat.html#the_rollback_journal
  private static func refuseSuperJournal(_ journal: FileDescriptor, size: Int) throws {
    let magic: [UInt8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7]
    guard size >= 16, try journal.readBytes(8, at: size - 8) == magic else { return }
    throw StorageError(
      .unsupported, "\(journal.path) names another file, which only a transaction on several databases does.")
  }
}

/// Values that change whenever a file is written to.
private struct FileVersion: Equatable {
  let isRegularFile: Bool
  let identity: FileIdentity
  let size: Int
  let modified: Timestamp
  let changed: Timestamp

  /// Nil if there is no file.
  init?(atPath path: String) throws {
    guard let status = try FileStatus(atPath: path) else { return nil }
    isRegularFile = status.isRegularFile
    (identity, size) = (status.identity, status.size)
    (modified, changed) = (status.modified, status.changed)
  }
}
