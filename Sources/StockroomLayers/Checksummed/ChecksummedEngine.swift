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
/// - values in which up to 32 consecutive bits, or up to 3 bits anywhere in 250 MB, have changed, and all other changed values
///   except about one in 2^32;
/// - values that have been swapped, or moved to another key, with the same exception;
/// - values that were stored without this layer, with the same exception.
///
/// Missing entries and earlier states of entries are not detected. Neither are deliberate changes that also replace the checksum;
/// to detect those, encrypt the values. So the layer has the capability `detectsCorruption` only if the engine below has it.
public struct ChecksummedEngine<Base: StorageEngine>: ValueLayer {
  /// The engine that keeps the values and their checksums.
  public let base: Base

  private static var checksumSize: Int { 4 }

  init(base: Base) { self.base = base }

  /// Appends the checksum to the value.
  public func encode(_ value: Data, key: CacheKey) -> Data {
    var stored = Data(capacity: value.count + Self.checksumSize)
    stored.append(value)
    let checksum = value.withUnsafeBytes { Self.checksum($0, key) }
    withUnsafeBytes(of: checksum.littleEndian) { stored.append(contentsOf: $0) }
    return stored
  }

  /// Verifies the checksum, and returns the value without it.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the checksum does not match the value and the key.
  public func decode(_ stored: Data, key: CacheKey) throws -> Data {
    let count = stored.count - Self.checksumSize
    let isRight = stored.withUnsafeBytes { bytes in
      guard count >= 0 else { return false }
      let checksum = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: count, as: UInt32.self))
      return checksum == Self.checksum(UnsafeRawBufferPointer(rebasing: bytes[..<count]), key)
    }
    guard isRight else {
      throw StorageError(.corrupted, "The checksum of \(key) does not match its value.")
    }
    // The checksum is at the end so that the value can be returned without copying it.
    return stored.startIndex == 0 ? stored.prefix(count) : Data(stored.prefix(count))
  }

  private static func checksum(_ value: UnsafeRawBufferPointer, _ key: CacheKey) -> UInt32 {
    key.withUTF8 { name in
      // The length determines where the key ends and the value begins.
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
  /// Costs processor time proportional to the size of the value: about 0.2 ms for a megabyte.
  public func checksummed() -> ChecksummedEngine<Self> { ChecksummedEngine(base: self) }
}
