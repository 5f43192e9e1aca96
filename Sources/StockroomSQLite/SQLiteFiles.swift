import StockroomCore
import Synchronization

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

/// Which files an open database consists of, and whether they still are where a new opening would look for them
/// (rule C6).
///
/// SQLite goes on with the files that it has open, whatever becomes of their names, and finds the write-ahead log and
/// the shared memory by their names: https://sqlite.org/howtocorrupt.html, sections 2.4 and 4.
final class SQLiteFiles: Sendable {
  /// What a connection has found out so far. It makes the next check cheap.
  struct Check: Sendable {
    /// When the directory was last changed, if another change cannot have the same time.
    fileprivate var directoryChange: Timestamp?
    /// Until when the way to the directory need not be looked at.
    fileprivate var wayIsKnownUntil: ContinuousClock.Instant?
  }

  /// How long after a change of a directory another one may have the same time: more than a tick of the kernel's clock,
  /// or in file systems that keep whole seconds, more than the two seconds of the coarsest.
  private static let tick = 50_000_000, coarseTick = 2_500_000_000
  /// How long readers may go without looking at the directories above that of the database.
  private static let wayIsKnownFor = Duration.milliseconds(5)

  /// The path of the database.
  private let path: String
  /// The names of the files in their directory, that of the database first.
  private let names: [String]
  /// The descriptor of the directory, or -1 once it has been closed.
  private let openDirectory: Atomic<Int32>
  private let identities: [FileIdentity?]

  /// Remembers which files are there now.
  ///
  /// - Throws: `StorageError` with code `io` if one of them is missing, or if the database is not the one that
  ///   `connection` has open.
  init(path: String, openOn connection: SQLiteConnection) throws {
    let url = URL(filePath: path)
    let parent = url.deletingLastPathComponent().path(percentEncoded: false)
    self.path = path
    names = ["", "-wal", "-shm"].map { url.lastPathComponent + $0 }
    let directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard directory >= 0 else { throw StorageError.posix(errno, "Opening the directory \(parent) failed.") }
    do {
      identities = try Self.identities(path, names, in: directory)
      if try identities.contains(nil) || connection.hasMoved() {
        throw StorageError.posix(
          ESTALE, "The files of the database \(path) were replaced while it was opened.")
      }
    } catch {
      systemClose(directory)
      throw error
    }
    openDirectory = Atomic(directory)
  }

  deinit { close() }

  /// Closes the directory. Nobody may check anything afterwards. May be called twice.
  func close() {
    let directory = openDirectory.exchange(-1, ordering: .relaxed)
    if directory >= 0 { systemClose(directory) }
  }

  private var directory: Int32 { openDirectory.load(ordering: .relaxed) }

  /// Throws if the files are not the ones that they were when the database was opened.
  ///
  /// What was read before this returns was there. Any change of a name changes the time of the directory, so that
  /// mostly one look at that suffices.
  ///
  /// - Parameter isThorough: Whether to notice at once that a directory further up was moved. Otherwise it may take some
  ///   milliseconds.
  /// - Throws: `StorageError` with code `io`.
  func check(_ check: inout Check, isThorough: Bool = false) throws {
    if let known = check.directoryChange, try lastChange() == known {
      if !isThorough, let end = check.wayIsKnownUntil, ContinuousClock.now < end { return }
      try compare([Self.identity(path, AT_FDCWD, path)])
    } else {
      let start = Timestamp.now().nanoseconds
      let change = try lastChange()
      try compare(Self.identities(path, names, in: directory))
      let isCoarse = change.nanoseconds.isMultiple(of: 1_000_000_000)
      let isLast = start - change.nanoseconds > Int64(isCoarse ? Self.coarseTick : Self.tick)
      check.directoryChange = isLast ? change : nil
    }
    check.wayIsKnownUntil = .now + Self.wayIsKnownFor
  }

  private func compare(_ found: [FileIdentity?]) throws {
    guard let index = found.indices.first(where: { found[$0] != identities[$0] }) else { return }
    let file = path + ["", "-wal", "-shm"][index]
    let isMissing = found[index] == nil
    throw StorageError(
      .io, "\(file) has been \(isMissing ? "deleted or moved" : "replaced") since the database was opened.",
      underlying: SystemError(isMissing ? ENOENT : ESTALE))
  }

  /// The database by its path, and what belongs to it beside it.
  private static func identities(
    _ path: String, _ names: [String], in directory: Int32
  ) throws -> [FileIdentity?] {
    try [
      identity(path, AT_FDCWD, path), identity(names[1], directory, path),
      identity(names[2], directory, path),
    ]
  }

  /// Which file has a name, without following a symbolic link, as a new opening would not.
  private static func identity(_ name: String, _ directory: Int32, _ path: String) throws -> FileIdentity? {
    var status = stat()
    guard fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Looking for the files of \(path) failed.")
    }
    return FileIdentity(status)
  }

  private func lastChange() throws -> Timestamp {
    var status = stat()
    guard fstat(directory, &status) == 0 else {
      throw StorageError.posix(errno, "Looking at the directory of \(path) failed.")
    }
    #if canImport(Darwin)
      let time = status.st_ctimespec
    #else
      let time = status.st_ctim
    #endif
    return Timestamp(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
  }
}

private func systemClose(_ descriptor: Int32) { close(descriptor) }
