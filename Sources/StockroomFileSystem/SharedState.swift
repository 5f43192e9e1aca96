#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// The file that all engines on a directory share, in this process and in others: the lock between writers, the numbers by which
/// readers detect a change without taking the lock, and the sequence numbers that order creations.
///
/// 64 bytes, little-endian: 16 of signature, then 64-bit numbers: version of the format, ``Contents``.
struct SharedState: Sendable {
  /// The numbers that change. Written only by the holder of the lock.
  struct Contents: Sendable {
    /// Odd while a batch is being applied. Reads of keys retry then.
    var batchVersion: UInt64 = 0
    /// Odd while any write is being applied. Listings retry then.
    var version: UInt64 = 0
    /// The last number in the order of creation that was assigned to an entry.
    var lastSequence: UInt64 = 0
    /// Never less than an assigned number, and synced before that number is assigned. After a crash of the machine, numbers
    /// continue after it.
    var reservedSequence: UInt64 = 0

    var isStable: Bool { batchVersion & 1 == 0 && version & 1 == 0 }
  }

  static let name = "state"
  static let size = 64
  private static let signature = Array("Stockroom files\n".utf8)
  private static let formatVersion: UInt64 = 1
  private static let contentsOffset = 24

  let file: FileDescriptor

  // MARK: Numbers

  /// Checks the signature and the version of the format. Nil if the file is new, and has not been written completely.
  func validate() throws -> Contents? {
    try withUnsafeTemporaryAllocation(byteCount: Self.size, alignment: 8) { bytes in
      let count = try file.read(into: bytes)
      // A crash of the machine in the middle of the first open can leave all zeros.
      if bytes[..<count].allSatisfy({ $0 == 0 }), count == 0 || count == Self.size { return nil }
      // A first open whose write failed or was interrupted can leave a part of the file.
      if count < Self.size, Self.encoded(Contents()).starts(with: bytes[..<count]) { return nil }
      guard count == Self.size else { throw StorageError.corruptedState(file.path, "it has been truncated") }
      guard bytes.prefix(Self.signature.count).elementsEqual(Self.signature) else {
        throw StorageError.corruptedState(file.path, "it does not begin as such a file does")
      }
      let version = Self.word(bytes, Self.signature.count)
      guard version == Self.formatVersion else {
        throw StorageError(
          .unsupported,
          "\(file.path) says that the directory has format \(version); this version of Stockroom supports format "
            + "\(Self.formatVersion).")
      }
      return try contents(UnsafeMutableRawBufferPointer(rebasing: bytes[Self.contentsOffset...]))
    }
  }

  func read() throws -> Contents {
    try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { bytes in
      guard try file.read(into: bytes, at: Self.contentsOffset) == bytes.count else {
        throw StorageError.corruptedState(file.path, "it has been truncated")
      }
      return try contents(bytes)
    }
  }

  /// A number that increases by one with each commit.
  func commitNumber() throws -> UInt64 { try read().version / 2 }

  /// Only ``Contents/batchVersion``, which is sufficient for a read of keys.
  func batchVersion() throws -> UInt64 {
    try withUnsafeTemporaryAllocation(byteCount: 8, alignment: 8) { bytes in
      guard try file.read(into: bytes, at: Self.contentsOffset) == bytes.count else {
        throw StorageError.corruptedState(file.path, "it has been truncated")
      }
      return Self.word(bytes, 0)
    }
  }

  func write(_ contents: Contents) throws {
    try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { bytes in
      Self.store(contents, in: bytes)
      try file.write(UnsafeRawBufferPointer(bytes), at: Self.contentsOffset)
    }
  }

  /// Writes the whole file.
  func create(_ contents: Contents) throws {
    try Self.encoded(contents).withUnsafeBytes { try file.write($0) }
  }

  private static func encoded(_ contents: Contents) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: size)
    bytes.withUnsafeMutableBytes { bytes in
      bytes.copyBytes(from: signature)
      bytes.storeBytes(of: formatVersion.littleEndian, toByteOffset: signature.count, as: UInt64.self)
      store(contents, in: UnsafeMutableRawBufferPointer(rebasing: bytes[contentsOffset...]))
    }
    return bytes
  }

  private func contents(_ bytes: UnsafeMutableRawBufferPointer) throws -> Contents {
    let contents = Contents(
      batchVersion: Self.word(bytes, 0), version: Self.word(bytes, 8), lastSequence: Self.word(bytes, 16),
      reservedSequence: Self.word(bytes, 24))
    // Sequence numbers are at least nanoseconds since 1970. Above this limit, there would be no numbers left to continue with.
    let numbers = [contents.batchVersion, contents.version, contents.lastSequence, contents.reservedSequence]
    guard numbers.allSatisfy({ $0 < UInt64(Int64.max) }) else {
      throw StorageError.corruptedState(file.path, "its numbers are out of range")
    }
    return contents
  }

  private static func store(_ contents: Contents, in bytes: UnsafeMutableRawBufferPointer) {
    let words = [
      contents.batchVersion, contents.version, contents.lastSequence, contents.reservedSequence,
    ]
    for (index, word) in words.enumerated() {
      bytes.storeBytes(of: word.littleEndian, toByteOffset: index * 8, as: UInt64.self)
    }
  }

  private static func word(_ bytes: UnsafeMutableRawBufferPointer, _ offset: Int) -> UInt64 {
    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
  }

  // MARK: Lock

  /// Waits until no other engine, in this process or another, holds the lock. The system releases the lock of
  /// a process that dies.
  ///
  /// - Parameter queue: A file that one engine at a time locks while it waits for this one: so an engine that
  ///   releases the lock and immediately needs it again does not overtake a waiting one.
  /// - Throws: `StorageError` with code `locked` if that takes longer than `timeout`.
  func lock(queue: FileDescriptor, timeout: Duration) throws {
    let end = ContinuousClock.now + timeout
    try FileLock.acquire(queue.number, path: file.path, timeout: timeout, until: end)
    defer { FileLock.release(queue.number) }
    try FileLock.acquire(file.number, path: file.path, timeout: timeout, until: end)
  }

  /// Takes the lock if it is free.
  func tryLock() throws -> Bool { try FileLock.tryAcquire(file.number, path: file.path) }

  func unlock() { FileLock.release(file.number) }
}
