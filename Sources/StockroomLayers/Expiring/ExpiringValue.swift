import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The format of a stored value. It begins with a byte: "K" if the value does not expire, "X" if it does. In the second case, the
/// time when the value was written and the time when it expires follow, in nanoseconds since 1970, in 8 bytes each, little-endian.
/// The value is at the end.
struct ExpiringValue {
  /// When the value was written and when it expires. Nil if it does not expire.
  var times: Times?
  var data: Data

  struct Times: Equatable {
    var written: Timestamp
    var expires: Timestamp
  }

  private static let kept = UInt8(ascii: "K")
  private static let expiring = UInt8(ascii: "X")
  private static let headerSize = 1 + 8 + 8

  /// The stored form of a value.
  static func stored(_ data: Data, _ times: Times?) -> Data {
    var stored = Data(capacity: headerSize + data.count)
    stored.append(times == nil ? kept : expiring)
    for time in [times?.written, times?.expires].compactMap(\.self) {
      withUnsafeBytes(of: time.nanoseconds.littleEndian) { stored.append(contentsOf: $0) }
    }
    stored.append(data)
    return stored
  }

  /// Decodes a stored value.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the bytes do not begin with a valid header.
  init(_ stored: Data, key: CacheKey) throws {
    times = try Self.times(of: stored, key: key)
    data = stored.subdata(in: (stored.startIndex + (times == nil ? 1 : Self.headerSize))..<stored.endIndex)
  }

  /// Like ``init(_:key:)``, without copying the value.
  static func times(of stored: Data, key: CacheKey) throws -> Times? {
    try stored.withUnsafeBytes { bytes in
      switch bytes.first {
      case kept: return nil
      case expiring where bytes.count >= headerSize:
        let times = Times(written: time(in: bytes, at: 1), expires: time(in: bytes, at: 9))
        // A corrupted time must not set the clock of the layer forward.
        if times.written <= times.expires { return times }
      default: break
      }
      throw StorageError(.corrupted, "The value of \(key) does not begin with the time when it expires.")
    }
  }

  private static func time(in bytes: UnsafeRawBufferPointer, at offset: Int) -> Timestamp {
    Timestamp(
      nanoseconds: Int64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: Int64.self)))
  }
}
