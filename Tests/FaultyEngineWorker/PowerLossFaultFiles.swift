import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file of batches that are appended, or a new file with all entries each time. A batch is a line with its length and
/// checksum, followed by a line for each operation.
struct PowerLossFaultFiles: Sendable {
  private let directory: String
  private let keepsLog: Bool
  private let fault: PowerLossFaultEngine.Fault?
  private var length = 0
  private var recordCount = 0
  /// The length of the log after the last compaction.
  private var compactedLength = 0

  private let isSynced: Bool

  private var path: String { directory + "/batches" }

  init(in url: URL, keepsLog: Bool, fault: PowerLossFaultEngine.Fault?) throws {
    (self.keepsLog, self.fault) = (keepsLog, fault)
    isSynced = ![.neverSyncs, .takesTornTailsUnsynced, .refusesHoles, .skipsHoles].contains(fault)
    if fault == .forgetsItsParents || !isSynced {
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    } else {
      try FileManager.Directory(url: url).create()
    }
    directory = FileManager.Directory(url: url).path
  }

  /// The stored batches. Truncates the file after the last complete one.
  mutating func read() throws -> [PowerLossFaultChange] {
    let bytes = FileManager.default.contents(atPath: path) ?? Data()
    var changes: [PowerLossFaultChange] = []
    while let (change, end) = batch(in: bytes, from: length) {
      changes.append(change)
      length = end
    }
    if length < bytes.count, fault == .refusesHoles {
      throw StorageError(.corrupted, "\(path) has a hole.")
    }
    if length < bytes.count, fault == .skipsHoles {
      // The next batch begins after a line break.
      for start in length..<bytes.count where start == length || bytes[start - 1] == UInt8(ascii: "\n") {
        if let (change, end) = batch(in: bytes, from: start), start >= length {
          changes.append(change)
          length = end
        }
      }
    }
    if length < bytes.count, fault != .takesTornTails, fault != .takesTornTailsUnsynced {
      _ = truncate(path, off_t(length))
    }
    return changes
  }

  /// Saves a batch that resulted in these entries.
  mutating func save(
    _ change: PowerLossFaultChange, _ entries: [PowerLossFaultEngine.Entry], isSynced: Bool
  ) throws {
    if keepsLog {
      try append(change, isSynced: isSynced && self.isSynced)
      recordCount += 1
      if isCompactionDue { try compact(PowerLossFaultChange(entries)) }
    } else {
      try replace(PowerLossFaultChange(entries))
    }
  }

  private mutating func append(_ change: PowerLossFaultChange, isSynced: Bool) throws {
    let isNew = access(path, F_OK) != 0
    let bytes = try encode(change)
    try withFile(path, O_WRONLY | O_CREAT) { file in
      // The writes of the previous batch are only synced now.
      if fault == .acknowledgesBeforeTheSync { fsync(file) }
      try write(bytes, at: length, to: file)
      if fault != .acknowledgesBeforeTheSync, isSynced { fsync(file) }
    }
    length += bytes.count
    if isNew, fault != .forgetsTheDirectory, isSynced {
      try FileManager.Directory.sync(directory)
    }
  }

  private var isCompactionDue: Bool {
    switch fault {
    case .compactsWithoutChecking: recordCount.isMultiple(of: 150)
    case nil, .compactsUnsynced, .forgetsCompactedNames, .removesBeforeRenaming:
      length > 2 * compactedLength + (1 << 19)
    default: false
    }
  }

  /// Replaces the log with one that has a single record.
  private mutating func compact(_ change: PowerLossFaultChange) throws {
    let bytes = try encode(change)
    try withFile(path + ".new", O_WRONLY | O_CREAT | O_TRUNC) { file in
      do { try write(bytes, at: 0, to: file) } catch {
        if fault == .compactsWithoutChecking { return }
        throw error
      }
      if fault != .compactsUnsynced { fsync(file) }
    }
    if fault == .removesBeforeRenaming { unlink(path) }
    rename(path + ".new", path)
    (length, compactedLength) = (bytes.count, bytes.count)
    if fault != .forgetsCompactedNames { try FileManager.Directory.sync(directory) }
  }

  private func replace(_ change: PowerLossFaultChange) throws {
    let isInPlace = fault == .overwritesInPlace
    let target = isInPlace ? path : path + ".new"
    try withFile(target, O_WRONLY | O_CREAT | O_TRUNC) { file in
      try write(try encode(change), at: 0, to: file)
      if fault != .renamesBeforeTheSync { fsync(file) }
    }
    if !isInPlace { rename(target, path) }
    if fault != .forgetsTheRename { try FileManager.Directory.sync(directory) }
  }

  private func withFile(_ path: String, _ flags: Int32, _ body: (Int32) throws -> Void) throws {
    let file = open(path, flags | O_CLOEXEC, 0o666)
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    defer { close(file) }
    try body(file)
  }

  private func write(_ bytes: Data, at offset: Int, to file: Int32) throws {
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeBytes {
        pwrite(file, $0.baseAddress.map { $0 + done }, $0.count - done, off_t(offset + done))
      }
      guard count > 0 else { throw StorageError.posix(errno, "Writing to \(path) failed") }
      done += count
    }
  }

  // MARK: Encoding

  private func encode(_ change: PowerLossFaultChange) throws -> Data {
    let encoder = JSONEncoder()
    let lines = try change.operations.reduce(into: Data()) { $0 += try encoder.encode($1) + Data("\n".utf8) }
    return Data("\(lines.count) \(checksum(lines))\n".utf8) + lines
  }

  private func batch(in bytes: Data, from start: Int) -> (PowerLossFaultChange, end: Int)? {
    guard let lineEnd = bytes[start...].firstIndex(of: UInt8(ascii: "\n")) else { return nil }
    let numbers = String(decoding: bytes[start..<lineEnd], as: UTF8.self).split(separator: " ")
    guard numbers.count == 2, let count = Int(numbers[0]) else { return nil }
    let end = min(bytes.count, lineEnd + 1 + count)
    let lines = bytes[(lineEnd + 1)..<end]
    let isWhole = lines.count == count && "\(checksum(lines))" == numbers[1]
    guard isWhole || fault == .takesTornTails || fault == .takesTornTailsUnsynced else { return nil }
    let operations = lines.split(separator: UInt8(ascii: "\n"))
      .compactMap { try? JSONDecoder().decode(PowerLossFaultChange.Operation.self, from: $0) }
    return (PowerLossFaultChange(operations), end)
  }

  private func checksum(_ bytes: Data) -> UInt64 {
    bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01b3 }
  }
}
