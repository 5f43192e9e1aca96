import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file with a line for each batch. An incomplete line at the end is ignored.
final class CrashFaultLog {
  struct Record: Sendable {
    struct Change: Sendable {
      /// Nil if everything is removed.
      var key: String?
      /// Nil if the key is removed.
      var data: Data?
    }

    var date = Date()
    var changes: [Change]

    /// Whether it contains a key that is longer than the maximum length of a file name.
    var hasLongKey: Bool { changes.contains { ($0.key?.utf8.count ?? 0) > 255 } }

    init(date: Date, changes: [Change]) { (self.date, self.changes) = (date, changes) }

    init(_ operations: [StorageOperation]) {
      changes = operations.map { operation in
        switch operation {
        case .write(let data, let key): Change(key: key.value, data: data)
        case .remove(let key): Change(key: key.value)
        case .removeAll: Change()
        }
      }
    }
  }

  private let path: String
  private let lockPath: String
  private let file: Int32
  private let lockFile: Int32
  private let isShared: Bool
  private let fault: CrashFaultEngine.Fault?
  /// How much of the file this engine has read, or written with `overwritesOthers`.
  private var length: off_t = 0

  init(in directory: URL, isShared: Bool, fault: CrashFaultEngine.Fault?) throws {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    (self.isShared, self.fault) = (isShared, fault)
    path = directory.appending(path: "log").path(percentEncoded: false)
    lockPath = directory.appending(path: "lock").path(percentEncoded: false)
    let locked = StorageError(
      .locked, fault == .locksWithoutName ? "Somebody has it." : "Another engine has \(path).")
    if fault == .leavesItsLock {
      lockFile = open(lockPath, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
      if lockFile < 0 { throw locked }
    } else {
      lockFile = open(lockPath, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
      if !isShared, fault != .hasNoLock, flock(lockFile, LOCK_EX | LOCK_NB) != 0 {
        systemClose(lockFile)
        throw locked
      }
    }
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
  }

  deinit {
    systemClose(file)
    if fault == .keepsItsLock { return }
    if fault == .leavesItsLock { unlink(lockPath) }
    flock(lockFile, LOCK_UN)
    systemClose(lockFile)
  }

  /// Simulates a lock that is lost with the first closed descriptor, or when the file is replaced.
  func loseTheLock() { flock(lockFile, LOCK_UN) }

  /// Waits for the exclusive lock.
  func lock() throws {
    guard isShared, fault != .overwritesOthers else { return }
    guard fault == .leavesLocksOfCalls else {
      while flock(lockFile, LOCK_EX) != 0, errno == EINTR {}
      return
    }
    for _ in 0..<400 {
      let descriptor = open(lockPath + ".call", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
      if descriptor >= 0 {
        systemClose(descriptor)
        return
      }
      usleep(1_000)
    }
    throw StorageError(.locked, "Another call has \(path).")
  }

  func unlock() {
    guard isShared, fault != .overwritesOthers else { return }
    if fault == .leavesLocksOfCalls { unlink(lockPath + ".call") } else { flock(lockFile, LOCK_UN) }
  }

  /// The records that were added since the last call. Truncates the file after the last complete one.
  func newRecords() throws -> [Record] {
    let end = lseek(file, 0, SEEK_END)
    if end <= length { return [] }
    var bytes = [UInt8](repeating: 0, count: Int(end - length))
    guard pread(file, &bytes, bytes.count, length) == bytes.count else {
      throw StorageError.posix(errno, "Reading \(path) failed")
    }
    let isWhole = bytes.last == UInt8(ascii: "\n")
    if !isWhole {
      if fault == .refusesTornLines {
        throw StorageError(.corrupted, "\(path) ends in the middle of a line.")
      }
      if fault == .trapsOnTornLines { fatalError("A line has an end.") }
      bytes.removeSubrange(((bytes.lastIndex(of: UInt8(ascii: "\n")) ?? -1) + 1)...)
      ftruncate(file, length + off_t(bytes.count))
    }
    length += off_t(bytes.count)
    do {
      return try lines(of: bytes).map { try Record(line: $0) }
    } catch {
      throw StorageError(.corrupted, "\(path) is corrupted.", underlying: error)
    }
  }

  private func lines(of bytes: [UInt8]) -> [Data] {
    bytes.withUnsafeBytes { bytes in
      var lines: [Data] = []
      guard var start = bytes.baseAddress else { return lines }
      let end = start + bytes.count
      while let lineEnd = memchr(start, Int32(UInt8(ascii: "\n")), end - start) {
        lines.append(Data(bytes: start, count: UnsafeRawPointer(lineEnd) - start))
        start = UnsafeRawPointer(lineEnd) + 1
      }
      return lines
    }
  }

  func clear() throws {
    guard ftruncate(file, 0) == 0 else { throw StorageError.posix(errno, "Clearing \(path) failed") }
    length = 0
  }

  /// Appends a record in parts of 32 bytes, so that a kill can tear it. The next call of `newRecords()` returns it,
  /// except with `overwritesOthers`.
  func append(_ record: Record) throws {
    let line = record.line + [UInt8(ascii: "\n")]
    let start = fault == .overwritesOthers ? length : lseek(file, 0, SEEK_END)
    for offset in stride(from: 0, to: line.count, by: 32) {
      let engineCase = Array(line[offset..<min(offset + 32, line.count)])
      guard pwrite(file, engineCase, engineCase.count, start + off_t(offset)) == engineCase.count else {
        throw StorageError.posix(errno, "Writing to \(path) failed")
      }
    }
    if fault == .overwritesOthers { length = start + off_t(line.count) }
    // As slow as a disk, so that the process may be killed between two parts.
    if fault == .logsLargeRemovalsInParts, record.changes.count == 999 { usleep(5_000) }
  }
}

extension CrashFaultLog.Record {
  /// The date and the changes, separated by spaces: `+` and a key, `:` and its value; `-` and a removed key; `*` if
  /// everything is removed. Keys and values are in base64.
  var line: Data {
    var line = String(date.timeIntervalSinceReferenceDate.bitPattern)
    for change in changes {
      switch (change.key.map { Data($0.utf8).base64EncodedString() }, change.data?.base64EncodedString()) {
      case (let key?, let data?): line += " +\(key):\(data)"
      case (let key?, nil): line += " -\(key)"
      case (nil, _): line += " *"
      }
    }
    return Data(line.utf8)
  }

  init(line: Data) throws {
    self = try line.withUnsafeBytes { line in
      var rest = line
      guard let bits = UInt64(String(decoding: Self.next(before: " ", of: &rest), as: UTF8.self)) else {
        throw StorageError(.corrupted, "A line does not begin with a date.")
      }
      var changes: [Change] = []
      while !rest.isEmpty { changes.append(try Self.change(Self.next(before: " ", of: &rest))) }
      return Self(date: Date(timeIntervalSinceReferenceDate: Double(bitPattern: bits)), changes: changes)
    }
  }

  private static func change(_ bytes: UnsafeRawBufferPointer) throws -> Change {
    var rest = UnsafeRawBufferPointer(rebasing: bytes.dropFirst())
    let key = Data(base64Encoded: Data(next(before: ":", of: &rest))).map {
      String(decoding: $0, as: UTF8.self)
    }
    switch bytes.first {
    case UInt8(ascii: "*"): return Change()
    case UInt8(ascii: "-"):
      if let key { return Change(key: key) }
    case UInt8(ascii: "+"):
      if let key, let data = Data(base64Encoded: Data(rest)) { return Change(key: key, data: data) }
    default: break
    }
    throw StorageError(.corrupted, "A line has something that is no change.")
  }

  /// Consumes the text up to the next separator, or to the end, and the separator.
  private static func next(
    before separator: Unicode.Scalar, of bytes: inout UnsafeRawBufferPointer
  ) -> UnsafeRawBufferPointer {
    guard let start = bytes.baseAddress, let end = memchr(start, Int32(separator.value), bytes.count) else {
      defer { bytes = UnsafeRawBufferPointer(start: nil, count: 0) }
      return bytes
    }
    let count = UnsafeRawPointer(end) - start
    defer { bytes = UnsafeRawBufferPointer(rebasing: bytes[(count + 1)...]) }
    return UnsafeRawBufferPointer(rebasing: bytes[..<count])
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
