import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file of a ``SystemFaultEngine``: consecutive records, each with its length and a checksum. It makes all system
/// calls that may fail.
final class SystemFaultFile {
  typealias Fault = SystemFaultEngine.Fault

  private let directory: String
  private let path: String
  private let lockFile: Int32
  private var file: Int32
  private let fault: Fault?
  /// The offset of the next record.
  private(set) var length = 0
  private var isBroken = false
  /// Whether the file has been replaced by one whose name may not be on the disk.
  private var isReplaced = false

  /// Opens or creates the file, and locks its directory.
  ///
  /// - Parameter beginning: The header of a file that only gets its name once it is on the disk.
  init(in directory: URL, beginning: [UInt8], fault: Fault?) throws {
    self.fault = fault
    self.directory = directory.path(percentEncoded: false)
    do {
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    } catch {
      throw StorageError(.io, "Making \(self.directory) failed.", underlying: error)
    }
    path = directory.appending(path: "log").path(percentEncoded: false)
    if fault == .staysCorrupted, access(path + ".failed", F_OK) == 0 {
      throw StorageError(.corrupted, "\(path) has seen an error.")
    }
    lockFile = try Self.lock(directory.appending(path: "lock").path(percentEncoded: false), fault)
    do {
      if fault == .namesCompleteLogs, access(path, F_OK) != 0 {
        try Self.make(path, beginning, in: self.directory)
      }
      file = try Self.open(path, fault)
    } catch {
      if fault != .leaksLocks { systemClose(lockFile) }
      throw error
    }
  }

  deinit {
    if file >= 0 { systemClose(file) }
    // A child of this process has a copy of the descriptor until it executes a program, and keeps the lock until then.
    _ = flock(lockFile, LOCK_UN)
    systemClose(lockFile)
  }

  private static func lock(_ path: String, _ fault: Fault?) throws -> Int32 {
    let file = retrying { systemOpen(path, O_RDWR | O_CREAT | O_CLOEXEC) }
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    while flock(file, LOCK_EX | LOCK_NB) != 0 {
      if errno == EINTR { continue }
      let number = errno
      if fault != .leaksDescriptors { systemClose(file) }
      throw number == EWOULDBLOCK
        ? StorageError(.locked, "Another engine has \(path).") : .posix(number, "Locking \(path) failed")
    }
    return file
  }

  private static func open(_ path: String, _ fault: Fault?) throws -> Int32 {
    // A fault: any error counts as a missing file.
    let isNew = fault == .emptyAfterAccessErrors && access(path, F_OK) != 0
    var file = retrying { systemOpen(path, O_RDWR | O_CREAT | O_CLOEXEC | (isNew ? O_TRUNC : 0)) }
    if file < 0, fault == .emptyAfterOpenErrors {
      // A fault: a file that cannot be opened counts as missing.
      unlink(path)
      file = systemOpen(path, O_RDWR | O_CREAT | O_CLOEXEC)
    }
    if file < 0, fault == .trapsOnErrors { fatalError("Opening \(path) failed.") }
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    return file
  }

  /// Creates the file under another name, and links it to its own name once it is on the disk.
  private static func make(_ path: String, _ bytes: [UInt8], in directory: String) throws {
    let unfinished = path + ".unfinished"
    unlink(unfinished)
    let file = retrying { systemOpen(unfinished, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC) }
    guard file >= 0 else { throw StorageError.posix(errno, "Making \(unfinished) failed") }
    defer {
      systemClose(file)
      unlink(unfinished)
    }
    guard pwrite(file, bytes, bytes.count, 0) == bytes.count, fdatasync(file) == 0,
      link(unfinished, path) == 0
    else { throw StorageError.posix(errno, "Making \(path) failed") }
    try syncDirectory(directory)
  }

  private static func retrying(_ call: () -> Int32) -> Int32 {
    while true {
      let result = call()
      if result >= 0 || errno != EINTR { return result }
    }
  }

  // MARK: Reading

  /// Whether its path leads to a file, as far as the system reports.
  var canBeFound: Bool { access(path, F_OK) == 0 }

  /// The contents of the file.
  func contents() throws -> [UInt8] {
    let count = Int(lseek(file, 0, SEEK_END))
    if count <= 0 { return [] }
    if fault == .emptyAfterMapErrors {
      guard let memory = mmap(nil, count, PROT_READ, MAP_PRIVATE, file, 0), memory != MAP_FAILED else {
        return []
      }
      defer { munmap(memory, count) }
      return Array(UnsafeRawBufferPointer(start: memory, count: count))
    }
    do {
      return try bytes(at: 0, count: count)
    } catch {
      if fault == .emptyAfterReadErrors { return [] }
      if fault == .emptyAfterRepeatedReadErrors { return (try? bytes(at: 0, count: count)) ?? [] }
      if fault == .setsAsideUnreadable { rename(path, path + ".unreadable") }
      throw error
    }
  }

  func bytes(at offset: Int, count: Int) throws -> [UInt8] {
    if isReplaced { throw StorageError(.io, "\(path) has failed before, and must be opened again.") }
    var bytes = [UInt8](repeating: 0, count: count)
    var done = 0
    while done < count {
      let read = bytes.withUnsafeMutableBytes {
        pread(file, $0.baseAddress.map { $0 + done }, count - done, off_t(offset + done))
      }
      if read < 0, errno == EINTR || errno == EAGAIN { continue }
      if read < 0 {
        let number = errno
        // A fault: the file was opened for this read only.
        if fault == .leaksDescriptorsOfReads { _ = systemOpen(path, O_RDONLY | O_CLOEXEC) }
        throw StorageError.posix(number, "Reading \(path) failed")
      }
      done += read
      if read == 0 || fault == .endsAtShortReads || fault == .returnsShortValues { break }
    }
    return Array(bytes.prefix(done))
  }

  // MARK: Writing

  /// Truncates the file, because there are no records after this offset.
  func cut(at end: Int) throws {
    if lseek(file, 0, SEEK_END) > end { try truncate(to: end) }
    length = end
  }

  /// Appends a record, and waits until it is on the disk. If that fails, the record is removed.
  func append(_ record: [UInt8]) throws {
    if isBroken { throw StorageError(.io, "\(path) has failed before, and must be opened again.") }
    if fault == .staysReadOnly, access(path + ".failed", F_OK) == 0 {
      throw StorageError(.io, "\(path) has seen an error.")
    }
    do {
      try write(record)
      try sync()
      length += record.count
    } catch {
      try undo(error)
    }
  }

  /// Reverts the write, and throws the error that made it fail.
  private func undo(_ error: any Error) throws -> Never {
    let code = (error as? StorageError)?.code
    switch fault {
    case .leavesRefusedRecords: length = Int(lseek(file, 0, SEEK_END))
    case .staysCorrupted, .staysReadOnly:
      systemClose(systemOpen(path + ".failed", O_RDWR | O_CREAT | O_CLOEXEC))
    case .evictsWhenFull where code == .diskFull:
      if ftruncate(file, 0) == 0 { length = 0 }
    case .breaksAtOnce, .namesCompleteLogs: isBroken = true
    case .repeatsShortWritesWhole: break
    case .appendsBehindTornRecords:
      do { try truncate(to: length) } catch { length = Int(lseek(file, 0, SEEK_END)) }
    default:
      do { try truncate(to: length) } catch { isBroken = true }
    }
    switch fault {
    case .throwsForeignErrors: throw POSIXError(.EIO)
    case .callsErrorsClosed: throw StorageError(.closed, "\(path) has been closed.")
    case .trapsOnErrors: fatalError("Writing \(path) failed.")
    default: throw error
    }
  }

  private var ignoresRewriteErrors: Bool {
    fault == .ignoresRewriteErrors || fault == .compactsIgnoringErrors
  }

  private func write(_ record: [UInt8]) throws {
    var done = 0
    while done < record.count {
      let count = record.withUnsafeBytes {
        pwrite(file, $0.baseAddress.map { $0 + done }, $0.count - done, off_t(length + done))
      }
      if count >= 0 {
        if count < record.count - done {
          if fault == .acknowledgesShortWrites || fault == .continuesShortWritesOnce && done > 0 { return }
          if fault == .repeatsShortWritesWhole {
            length += count
            continue
          }
        }
        done += count
        continue
      }
      if errno == EINTR || errno == EAGAIN {
        if fault == .hangsWhenInterrupted { while true { usleep(50_000) } }
        if fault == .acknowledgesInterruptedWrites { return }
        continue
      }
      if fault == .ignoresWriteErrors { return }
      throw StorageError.posix(errno, "Writing to \(path) failed")
    }
  }

  private func sync() throws {
    if fdatasync(file) == 0 || fault == .ignoresSyncErrors { return }
    // Unlike a failed write, a failed sync cannot be corrected by repeating it.
    if errno == EINTR, fault == .repeatsInterruptedSyncs, fdatasync(file) == 0 { return }
    if fault == .repeatsSyncs, fdatasync(file) == 0 { return }
    throw StorageError.posix(errno, "Syncing \(path) failed")
  }

  /// Truncates the file to this length.
  func truncate(to end: Int) throws {
    while ftruncate(file, off_t(end)) != 0 {
      if errno == EINTR { continue }
      if fault == .ignoresTruncateErrors { return }
      throw StorageError.posix(errno, "Truncating \(path) failed")
    }
    length = end
  }

  /// Starts another file.
  func startAgain() throws {
    if unlink(path) != 0, fault != .ignoresUnlinkErrors {
      throw StorageError.posix(errno, "Removing \(path) failed")
    }
    systemClose(file)
    file = -1
    file = try Self.open(path, fault)
    length = Int(lseek(file, 0, SEEK_END))
  }

  /// Replaces this file with another one that has these bytes.
  func replace(with bytes: [UInt8]) throws {
    if isBroken { throw StorageError(.io, "\(path) has failed before, and must be opened again.") }
    let new = fault == .truncatesBeforeWriting ? path : path + ".new"
    let other = systemOpen(new, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC)
    guard other >= 0 else { throw StorageError.posix(errno, "Making \(new) failed") }
    let (before, old) = (length, file)
    (file, length) = (other, 0)
    do {
      do { try write(bytes) } catch  where ignoresRewriteErrors {}
      try sync()
      if fault == .unlinksBeforeRenaming { unlink(path) }
      if new != path, rename(new, path) != 0, fault != .ignoresRenameErrors {
        throw StorageError.posix(errno, "Renaming \(new) failed")
      }
    } catch {
      systemClose(other)
      if new != path { unlink(new) }
      (file, length) = (old, before)
      throw error
    }
    systemClose(old)
    length = bytes.count
    // Others may have seen the new name, so the rename cannot be undone.
    do { try Self.syncDirectory(directory) } catch {
      (isBroken, isReplaced) = (true, true)
      throw error
    }
  }

  private static func syncDirectory(_ directory: String) throws {
    let file = systemOpen(directory, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(directory) failed") }
    defer { systemClose(file) }
    guard fsync(file) == 0 else { throw StorageError.posix(errno, "Syncing \(directory) failed") }
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }

private func systemOpen(_ path: String, _ flags: Int32) -> Int32 { open(path, flags, 0o600) }
