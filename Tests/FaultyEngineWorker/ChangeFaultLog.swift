import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file with a line for each batch, to which several processes append.
final class ChangeFaultLog {
  private let path: String
  private let file: Int32
  private let lockFile: Int32
  /// How much of the file this engine has read or written.
  private var length: off_t = 0

  init(in directory: URL) throws {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    path = directory.appending(path: "log").path(percentEncoded: false)
    lockFile = open(path + ".lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    guard file >= 0, lockFile >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
  }

  deinit {
    systemClose(file)
    systemClose(lockFile)
  }

  /// Waits for the exclusive lock.
  func lock() { while flock(lockFile, LOCK_EX) != 0, errno == EINTR {} }

  func unlock() { flock(lockFile, LOCK_UN) }

  /// The records that were added since the last call. Truncates an incomplete line.
  func newRecords() throws -> [CrashFaultLog.Record] {
    let end = lseek(file, 0, SEEK_END)
    if end <= length { return [] }
    var bytes = [UInt8](repeating: 0, count: Int(end - length))
    guard pread(file, &bytes, bytes.count, length) == bytes.count else {
      throw StorageError.posix(errno, "Reading \(path) failed")
    }
    let whole = (bytes.lastIndex(of: UInt8(ascii: "\n")) ?? -1) + 1
    if whole < bytes.count {
      bytes.removeSubrange(whole...)
      ftruncate(file, length + off_t(whole))
    }
    length += off_t(whole)
    do {
      return try bytes.split(separator: UInt8(ascii: "\n")).map {
        try CrashFaultLog.Record(line: Data($0))
      }
    } catch {
      throw StorageError(.corrupted, "\(path) is corrupted.", underlying: error)
    }
  }

  /// Appends a record. `newRecords()` does not return it here.
  func append(_ record: CrashFaultLog.Record) throws {
    let line = record.line + [UInt8(ascii: "\n")]
    let written = line.withUnsafeBytes { pwrite(file, $0.baseAddress, $0.count, length) }
    guard written == line.count else { throw StorageError.posix(errno, "Writing to \(path) failed") }
    length += off_t(line.count)
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
