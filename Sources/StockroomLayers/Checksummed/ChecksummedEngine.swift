public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores each value with a checksum. ``StockroomCore/StorageEngine/checksummed()`` returns it.
///
/// The checksum is the CRC-32C of the length of the key (2 bytes, little-endian), the key and the value. It is stored in 4 bytes
/// (little-endian) after the value. Every call that reads the value, and ``verify()``, detect and report as `corrupted`:
///
/// - values in which up to 32 consecutive bits, or up to 3 bits anywhere in 250 MB, have changed, and of all other changes all but one in
///   four thousand million;
/// - values that have been swapped, or that are under another key, with the same exception;
/// - values that something other than this layer has stored.
///
/// Not detected are missing entries, entries as they were at an earlier time, and deliberate changes that are meant to go undetected, for which
/// the values must be encrypted. So the layer has the capability `detectsCorruption` only if the engine below has it.
public struct ChecksummedEngine<Base: StorageEngine>: ValueLayer {
  /// The engine that keeps the values and their checksums.
  public let base: Base

  private static var checksumSize: Int { 4 }

  init(base: Base) { self.base = base }

  /// The value and the checksum.
  public func encode(_ value: Data, key: CacheKey) -> Data {
    var stored = Data(capacity: value.count + Self.checksumSize)
    stored.append(value)
    let checksum = value.withUnsafeBytes { Self.checksum($0, key) }
    withUnsafeBytes(of: checksum.littleEndian) { stored.append(contentsOf: $0) }
    return stored
  }

  /// The value that was stored.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the checksum is that of another value or key.
  public func decode(_ stored: Data, key: CacheKey) throws -> Data {
    let count = stored.count - Self.checksumSize
    let isRight = stored.withUnsafeBytes { bytes in
      guard count >= 0 else { return false }
      let checksum = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: count, as: UInt32.self))
      return checksum == Self.checksum(UnsafeRawBufferPointer(rebasing: bytes[..<count]), key)
    }
    guard isRight else {
      throw StorageError(.corrupted, "The checksum of \(key) is not that of its value.")
    }
    // Without a copy of the value, which is why the checksum is behind it.
    return stored.startIndex == 0 ? stored.prefix(count) : Data(stored.prefix(count))
  }

  private static func checksum(_ value: UnsafeRawBufferPointer, _ key: CacheKey) -> UInt32 {
    key.withUTF8 { name in
      // The length says where the key ends and the value begins.
      let length = withUnsafeBytes(of: UInt16(truncatingIfNeeded: name.count).littleEndian) {
        CRC32C.checksum($0)
      }
      return CRC32C.checksum(value, after: CRC32C.checksum(name, after: length))
    }
  }
}

extension StorageEngine {
  /// This engine, with a checksum for each value. See ``ChecksummedEngine``.
  ///
  /// Costs processor time in proportion to the value: some 0.2 ms for a megabyte.
  public func checksummed() -> ChecksummedEngine<Self> { ChecksummedEngine(base: self) }
}
