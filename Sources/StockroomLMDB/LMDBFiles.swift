import Dispatch
import StockroomCore
import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Where the files of an open environment were when it was opened, and whether they are there still (rule C6).
final class LMDBFiles: Sendable {
  private let lockFile: LMDBLockFile
  private let dataPath, lockPath: String
  private let data, lock: FileIdentity
  private let lockSize: Int64
  /// When the next checks are due, in nanoseconds.
  private let nextDataCheck = Atomic<UInt64>(0)
  private let nextLockCheck = Atomic<UInt64>(0)
  private let nextFlagCheck = Atomic<UInt64>(0)
  /// Whether the lock file could not be written when a check was last due.
  private let isImmutable = Atomic(false)
  /// How long a check serves the reads of single keys that come after it. It takes as long as such a read.
  private static let checkInterval: UInt64 = 50_000

  init(_ file: LMDBFile, _ lockFile: LMDBLockFile) throws {
    (dataPath, data) = (file.path, file.identity)
    (lockPath, lock) = (lockFile.path, lockFile.identity)
    self.lockFile = lockFile
    lockSize = try Self.examine(lockFile.path, lockFile.identity)
  }

  /// Returns the size of the data file.
  ///
  /// - Throws: `StorageError` with code `io` if one of the paths leads elsewhere, or nowhere.
  func check() throws -> Int64 {
    guard try Self.examine(lockPath, lock) >= lockSize else {
      throw StorageError(.io, "\(lockPath) has been cut off since it was opened.")
    }
    return try checkData()
  }

  /// Returns the size of the data file.
  func checkData() throws -> Int64 { try Self.examine(dataPath, data) }

  /// Checks the data file if that is due, and its size as well. As long as only the lock file is missing, reads are right: what
  /// is written without it shows in LMDB's own numbers.
  ///
  /// - Returns: Whether the lock file can be written.
  func checkDataIfDue(_ checkSize: (Int64) throws -> Void) throws -> Bool {
    let now = Self.now
    try ifDue(nextDataCheck, now) { try checkSize(try checkData()) }
    ifDue(nextFlagCheck, now, every: 20) { isImmutable.store(lockFile.isImmutable, ordering: .relaxed) }
    return !isImmutable.load(ordering: .relaxed)
  }

  /// - Throws: `StorageError` with code `permissionDenied` if the lock file cannot be written.
  func checkWritable() throws {
    if lockFile.isImmutable { throw StorageError.posix(EPERM, "\(lockPath) cannot be written") }
  }

  /// Checks the lock file if that is due.
  func checkLockIfDue() throws {
    try ifDue(nextLockCheck, Self.now) { _ = try Self.examine(lockPath, lock) }
  }

  private func ifDue(
    _ next: borrowing Atomic<UInt64>, _ now: UInt64, every count: UInt64 = 1, _ check: () throws -> Void
  ) rethrows {
    if now < next.load(ordering: .relaxed) { return }
    try check()
    next.store(now + count * Self.checkInterval, ordering: .relaxed)
  }

  private static func examine(_ path: String, _ identity: FileIdentity) throws -> Int64 {
    var status = stat()
    guard stat(path, &status) == 0 else {
      let number = errno
      guard number == ENOENT || number == ENOTDIR else {
        throw StorageError.posix(number, "Examining \(path) failed")
      }
      throw StorageError(
        .io, "\(path) has been deleted or moved since it was opened.", underlying: SystemError(number))
    }
    guard FileIdentity(status) == identity else {
      throw StorageError(.io, "\(path) has been replaced since it was opened.")
    }
    return Int64(status.st_size)
  }

  private static var now: UInt64 { DispatchTime.now().uptimeNanoseconds }
}
