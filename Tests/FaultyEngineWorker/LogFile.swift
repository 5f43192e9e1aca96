import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file to which every batch is appended: length, checksum, time and operations.
struct LogFile: ~Copyable {
  private let descriptor: Int32
  private let path: String
  /// The directory, and its identity when it was opened.
  private let place: (path: String, identity: FileIdentity?)
  private var length: Int64
  private let fault: ReferenceEngine.Fault?

  private static let magic = Data("reference log 1\n".utf8)

  static func makeDirectory(_ directory: URL, fault: ReferenceEngine.Fault?) throws {
    do {
      if fault == .clearsTheWay {
        let parent = directory.deletingLastPathComponent()
        for url in [parent, directory] where (try? Data(contentsOf: url)) != nil {
          try FileManager.default.removeItem(at: url)
        }
      }
      let mode = fault == .makesPublicDirectories ? 0o755 : 0o700
      try FileManager.default.createDirectory(
        at: directory, withIntermediateDirectories: fault != .needsDirectory,
        attributes: [.posixPermissions: mode])
    } catch CocoaError.fileWriteFileExists where fault == .needsDirectory {
      return
    } catch CocoaError.fileWriteVolumeReadOnly {
      throw StorageError(
        fault == .reportsReadOnlyAsIO ? .io : .readOnly, "Making \(directory.path()) failed.")
    } catch {
      throw StorageError(
        .io, "Making the directory \(directory.path(percentEncoded: false)) failed.", underlying: error)
    }
  }

  init(in directory: URL, fault: ReferenceEngine.Fault?) throws {
    path = directory.appending(path: "reference.log").path(percentEncoded: false)
    self.fault = fault
    let directoryPath = directory.path(percentEncoded: false)
    place = (directoryPath, try? FileIdentity(path: directoryPath))
    let isNew = access(path, F_OK) != 0
    if fault == .clearsDirectoriesAway, rmdir(path) != 0, errno == ENOTEMPTY {
      try? FileManager.default.removeItem(atPath: path)
    }
    descriptor = open(
      path, O_RDWR | O_CREAT | O_CLOEXEC | Self.flags(path, isNew: isNew, fault),
      fault == .makesPublicFiles ? 0o644 : 0o600)
    let error = errno
    length = 0
    guard descriptor >= 0 else {
      if error == EROFS, fault == .reportsReadOnlyAsIO { throw StorageError(.io, "Opening \(path) failed.") }
      throw StorageError.posix(error, "Opening \(path) failed")
    }
    var status = stat()
    // If an error is thrown from here on, `deinit` closes the file.
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      throw StorageError(.io, "\(path) is no file.")
    }
    length = Int64(lseek(descriptor, 0, SEEK_END))
    var link = stat()
    if fault == .followsForeignLinks, lstat(path, &link) == 0, link.st_mode & S_IFMT == S_IFLNK {
      try clear()
    }
    guard isNew else { return }
    do {
      try append(Self.magic)
    } catch {
      unlink(path)
      throw error
    }
  }

  /// A correct engine neither follows a link nor waits for the other end of a FIFO.
  private static func flags(_ path: String, isNew: Bool, _ fault: ReferenceEngine.Fault?) -> Int32 {
    if fault == .waitsForFIFOs {
      // For example to check that it can be read.
      let file = open(path, O_RDONLY | O_CLOEXEC)
      if file >= 0 { close(file) }
    }
    var isOurs: Bool {
      !isNew && (FileManager.default.contents(atPath: path) ?? Data()).starts(with: magic)
    }
    let follows =
      switch fault {
      case .followsForeignLinks: !isNew && !isOurs
      case .followsLinksToNowhere: isNew
      case .followsLinksToItsFiles: isOurs
      default: false
      }
    return O_NONBLOCK | (follows ? 0 : O_NOFOLLOW)
  }

  /// - Throws: `StorageError` with code `io` if the path no longer leads to the file.
  func expectInPlace() throws {
    var status = stat()
    let moved = StorageError(.io, "\(path) has been deleted, moved or replaced.")
    switch fault {
    case .ignoresItsPlace: return
    case .noticesDeletionOnly: if fstat(descriptor, &status) != 0 || status.st_nlink == 0 { throw moved }
    case .noticesDirectoryOnly:
      let identity = try FileIdentity(path: place.path)
      if identity == nil || identity != place.identity { throw moved }
    case .noticesAbsenceOnly: if stat(path, &status) != 0 { throw moved }
    default:
      let identity = try FileIdentity(path: path)
      if try identity != FileIdentity(descriptor: descriptor, path: path) { throw moved }
    }
  }

  /// - Throws: With a fault of refused writes, `StorageError` if the system refuses to write, except if the disk is
  ///   full.
  func expectWritable() throws {
    guard [.remembersRefusedWrites, .repeatsRefusedWrites].contains(fault) else { return }
    // Writes a byte, since a write of none may succeed, and removes it again.
    var byte: UInt8 = 0
    guard pwrite(descriptor, &byte, 1, off_t(length)) == 1 else {
      if errno == ENOSPC { return }
      throw StorageError.posix(errno, "Writing to \(path) failed")
    }
    ftruncate(descriptor, off_t(length))
  }

  deinit {
    if fault != .keepsFileOpen { close(descriptor) }
  }

  mutating func clear() throws {
    ftruncate(descriptor, 0)
    length = 0
    try append(Self.magic)
  }

  mutating func append(_ operations: [StorageOperation], at time: Date) throws {
    let payload = Self.encode(saved(operations), at: fault == .savesWholeSeconds ? time.inWholeSeconds : time)
    var record = Data()
    record.append(UInt64(payload.count))
    record.append(payload.checksum)
    record.append(payload)
    try append(record)
  }

  /// The operations that are saved: with some faults, not all of them, or not completely.
  private func saved(_ operations: [StorageOperation]) -> [StorageOperation] {
    operations.compactMap { operation in
      switch (fault, operation) {
      case (.forgetsRemovals, .remove), (.forgetsRemoveAll, .removeAll): nil
      case (.savesLittle, .write(let data, let key)): .write(data.prefix(65_536), key: key)
      default: operation
      }
    }
  }

  private mutating func append(_ bytes: Data) throws {
    var written = 0
    while written < bytes.count {
      let count = bytes.withUnsafeBytes { pointer in
        pwrite(
          descriptor, pointer.baseAddress.map { $0 + written }, bytes.count - written,
          off_t(length) + off_t(written))
      }
      guard count > 0 else {
        let error = errno
        ftruncate(descriptor, off_t(length))
        if fault == .reportsFullDiskAsIO { throw StorageError(.io, "Writing to \(path) failed.") }
        throw StorageError.posix(error, "Writing to \(path) failed")
      }
      written += count
    }
    length += Int64(bytes.count)
  }

  /// Every batch with its time.
  func records(ignoringChecksums: Bool) throws -> [(Date, [StorageOperation])] {
    var bytes = try Data(contentsOf: URL(filePath: path))
    guard bytes.starts(with: Self.magic) else {
      if fault == .leaksWhenCorrupted { _ = open(path, O_RDONLY | O_CLOEXEC) }
      throw StorageError(.corrupted, "\(path) is no log of this engine.")
    }
    var reader = Reader(bytes: bytes, position: Self.magic.count, path: path)
    var records: [(Date, [StorageOperation])] = []
    while reader.position < bytes.count {
      let rest = bytes.count - reader.position
      if fault == .takesTornTails {
        var ahead = reader
        guard rest >= 16, try ahead.number() <= rest - 16 else { break }
      }
      var isFilled = false
      if fault == .fillsTornTails, rest >= 16 {
        var ahead = reader
        let missing = try Int(clamping: ahead.number()) - (rest - 16)
        isFilled = 1..<4_096 ~= missing
        if isFilled {
          bytes += Data(count: missing)
          reader = Reader(bytes: bytes, position: reader.position, path: path)
        }
      }
      let count = try reader.number()
      // The length of a torn record may be any number.
      if fault == .takesLongRecordsForTorn, count > 4 << 20 { break }
      let sum = try reader.number()
      let payload = try reader.data(count)
      guard ignoringChecksums || isFilled || payload.checksum == sum else {
        throw StorageError(.corrupted, "\(path) is corrupted.")
      }
      var inner = Reader(bytes: payload, position: 0, path: path)
      let time = Date(timeIntervalSinceReferenceDate: Double(bitPattern: try inner.number()))
      var operations: [StorageOperation] = []
      while inner.position < payload.count { operations.append(try inner.operation()) }
      records.append((time, operations))
    }
    return records
  }

  private static func encode(_ operations: [StorageOperation], at time: Date) -> Data {
    var payload = Data()
    payload.append(time.timeIntervalSinceReferenceDate.bitPattern)
    for operation in operations {
      switch operation {
      case .removeAll: payload.append(UInt64(0))
      case .remove(let key):
        payload.append(UInt64(1))
        payload.append(UInt64(key.value.utf8.count))
        payload.append(contentsOf: key.value.utf8)
      case .write(let data, let key):
        payload.append(UInt64(2))
        payload.append(UInt64(key.value.utf8.count))
        payload.append(contentsOf: key.value.utf8)
        payload.append(UInt64(data.count))
        payload.append(data)
      }
    }
    return payload
  }
}

extension Data {
  /// Distinguishes a torn or corrupted record from a complete one.
  var checksum: UInt64 { withUnsafeBytes { UInt64(CRC32C.checksum($0)) } }
}

private struct Reader {
  let bytes: Data
  var position: Int
  let path: String

  private var corrupted: StorageError { StorageError(.corrupted, "\(path) is corrupted.") }

  mutating func data(_ count: UInt64) throws -> Data {
    guard count <= UInt64(bytes.count - position) else { throw corrupted }
    defer { position += Int(count) }
    return Data(bytes[(bytes.startIndex + position)..<(bytes.startIndex + position + Int(count))])
  }

  mutating func number() throws -> UInt64 {
    try data(8).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
  }

  mutating func operation() throws -> StorageOperation {
    let kind = try number()
    if kind == 0 { return .removeAll }
    let key = CacheKey(verbatim: String(decoding: try data(try number()), as: UTF8.self))
    switch kind {
    case 1: return .remove(key: key)
    case 2: return .write(try data(try number()), key: key)
    default: throw corrupted
    }
  }
}

extension Date {
  fileprivate var inWholeSeconds: Date {
    Date(timeIntervalSinceReferenceDate: timeIntervalSinceReferenceDate.rounded(.down))
  }
}

extension Data {
  fileprivate mutating func append(_ number: UInt64) {
    Swift.withUnsafeBytes(of: number) { append(contentsOf: $0) }
  }
}
