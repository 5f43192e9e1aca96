import StockroomCore
import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The identities of an environment's files when it was opened. Checks whether the files are still in place (rule C6).
final class LMDBFiles: Sendable {
  private let lockFile: LMDBLockFile
  private let directory: DirectoryMonitor
  private let dataPath, lockPath: String
  private let data, lock: FileIdentity
  private let lockSize: Int64
  /// Whether the lock file existed when a reader last checked it.
  private let hasLockFile = Atomic(true)
  /// Whether the lock file was writable when a reader last checked it.
  private let isWritable = Atomic(true)

  init(_ file: LMDBFile, _ lockFile: LMDBLockFile) throws {
    (dataPath, data) = (file.path, file.identity)
    (lockPath, lock) = (lockFile.path, lockFile.identity)
    self.lockFile = lockFile
    directory = try DirectoryMonitor(path: file.directory)
    lockSize = try Self.examine(lockFile.path, lockFile.identity)
  }

  /// Closes the directory. No check may follow. May be called twice.
  func close() { directory.close() }

  /// Returns the size of the data file.
  ///
  /// - Throws: `StorageError` with code `io` if a file has been deleted, moved or replaced, or if the lock file has
  ///   been truncated.
  func check() throws -> Int64 {
    try checkLockFile()
    return try checkData()
  }

  /// Returns the size of the data file.
  func checkData() throws -> Int64 { try Self.examine(dataPath, data) }

  /// Checks the data file for a read of a few keys: usually by one check of its directory, and occasionally its size as
  /// well. Does not throw if only the lock file is missing: reads are still correct, since the transaction numbers in
  /// the data file show a commit that was made without the lock file.
  ///
  /// - Returns: Whether the lock file is writable.
  func checkData(_ checkSize: (Int64) throws -> Void) throws -> Bool {
    if let observation = try directory.observe(isFrequent: true) {
      try checkSize(try checkData())
      hasLockFile.store((try? checkLockFile()) != nil, ordering: .relaxed)
      isWritable.store(!lockFile.isImmutable, ordering: .relaxed)
      directory.confirm(observation)
    }
    return isWritable.load(ordering: .relaxed)
  }

  /// - Throws: `StorageError` with code `permissionDenied` if the lock file is not writable.
  func checkWritable() throws {
    if lockFile.isImmutable { throw StorageError.posix(EPERM, "\(lockPath) cannot be written") }
  }

  /// Checks the lock file if ``checkData(_:)`` has not found it.
  func checkLockFileIfMissing() throws {
    if !hasLockFile.load(ordering: .relaxed) { try checkLockFile() }
  }

  private func checkLockFile() throws {
    guard try Self.examine(lockPath, lock) >= lockSize else {
      throw StorageError(.io, "\(lockPath) has been truncated since it was opened.")
    }
  }

  private static func examine(_ path: String, _ identity: FileIdentity) throws -> Int64 {
    guard let found = UntimedFileStatus(path: path) else {
      let number = errno
      guard number == ENOENT || number == ENOTDIR else {
        throw StorageError.posix(number, "Examining \(path) failed")
      }
      throw StorageError(
        .io, "\(path) has been deleted or moved since it was opened.", underlying: SystemError(number))
    }
    guard found.identity == identity else {
      throw StorageError(.io, "\(path) has been replaced since it was opened.")
    }
    return Int64(found.size)
  }
}
