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

/// The files of an open database, and the check that they are still at the paths that an engine opened now would use (rule C6).
///
/// SQLite keeps using the files that it has open, even if they are renamed or removed, and finds the
/// write-ahead log and the shared memory by their names: https://sqlite.org/howtocorrupt.html, sections 2.4
/// and 4.
final class SQLiteFiles: Sendable {
  /// The path of the database.
  private let path: String
  /// The names of the files in their directory, beginning with the database.
  private let names: [String]
  private let directory: DirectoryMonitor
  private let identities: [FileIdentity?]
  /// The status of the database if SQLite has opened it as immutable, and so relies on it not being changed.
  private let unchanged: FileStatus?
  private let isReadOnly: Bool

  /// Remembers the current files.
  ///
  /// - Throws: `StorageError` with code `io` if one of them is missing, or if the database is not the one that
  ///   `connection` has open.
  init(_ file: SQLiteFile, openOn connection: SQLiteConnection) throws {
    let path = file.path
    let url = URL(filePath: path)
    let parent = url.deletingLastPathComponent().path(percentEncoded: false)
    self.path = path
    names = ["", "-wal", "-shm"].map { url.lastPathComponent + $0 }
    directory = try DirectoryMonitor(path: parent)
    identities = try Self.identities(path, names, in: directory.descriptor)
    unchanged = file.immutableStatus
    isReadOnly = file.isReadOnly
    try checkSource(file.file)
    // A database that is only read may have no log.
    let isMissing = file.isReadOnly ? identities[0] == nil : identities.contains(nil)
    if try isMissing || connection.hasMoved() {
      throw StorageError.posix(
        ESTALE, "The files of the database \(path) were replaced while it was opened.")
    }
  }

  /// Closes the directory. No check may follow. May be called twice.
  func close() { directory.close() }

  /// Whether the engine only reads and the log has contents, which closing must not checkpoint.
  var keepsLog: Bool {
    get throws { try isReadOnly && hasLog }
  }

  private var hasLog: Bool {
    get throws { try FileStatus(atPath: path + "-wal").map { $0.size > 0 } ?? false }
  }

  /// Throws if the files are not the ones that were opened.
  ///
  /// Everything that was read before this returns is from these files. Usually this takes one check of the
  /// directory.
  ///
  /// - Parameter isThorough: Whether to detect immediately that a directory further up was moved. Otherwise
  ///   it may take a fraction of a millisecond.
  /// - Throws: `StorageError` with code `io`.
  func check(isThorough: Bool = false) throws {
    if let unchanged {
      let status = try FileStatus(atPath: path)
      guard status?.identity == unchanged.identity, status?.changed == unchanged.changed,
        status?.size == unchanged.size, try !hasLog
      else {
        throw StorageError.posix(ESTALE, "The database \(path) was changed while it was being read.")
      }
    }
    guard let observation = try directory.observe(isThorough: isThorough) else { return }
    if observation.mayDifferInNames {
      try compare(Self.identities(path, names, in: directory.descriptor))
    } else {
      try compare([Self.identity(path, AT_FDCWD, path)])
    }
    directory.confirm(observation)
  }

  /// Throws if the path that a connection opens leads to another database than the path that the engine has, for example
  /// because links in it have changed.
  ///
  /// - Parameter source: The path without links.
  func checkSource(_ source: String) throws { try compare([Self.identity(source, AT_FDCWD, path)]) }

  private func compare(_ found: [FileIdentity?]) throws {
    guard let index = found.indices.first(where: { found[$0] != identities[$0] && !mayAppear($0) })
    else { return }
    let file = path + ["", "-wal", "-shm"][index]
    let isMissing = found[index] == nil
    throw StorageError(
      .io, "\(file) has been \(isMissing ? "deleted or moved" : "replaced") since the database was opened.",
      underlying: SystemError(isMissing ? ENOENT : ESTALE))
  }

  /// Whether a file may appear and disappear. A backup has no log until an engine opens it to write, and an
  /// engine that reads then detects that with the next read.
  private func mayAppear(_ index: Int) -> Bool {
    isReadOnly && unchanged == nil && identities[index] == nil
  }

  /// The database by its path, and the files that belong to it.
  private static func identities(
    _ path: String, _ names: [String], in directory: Int32
  ) throws -> [FileIdentity?] {
    try [
      identity(path, AT_FDCWD, path), identity(names[1], directory, path),
      identity(names[2], directory, path),
    ]
  }

  /// The identity of the file with a name, without following a symbolic link, which opening a database does not follow either.
  private static func identity(_ name: String, _ directory: Int32, _ path: String) throws -> FileIdentity? {
    var status = stat()
    guard fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Looking for the files of \(path) failed.")
    }
    return FileIdentity(status)
  }
}
