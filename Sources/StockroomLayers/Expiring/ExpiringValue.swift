import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A value with its time in front: a byte that is "K" for a value that is kept, or "X" for one that expires; then, for that one, the
/// moments when it was written and when it expires, in nanoseconds since 1970, as 8 bytes each, little-endian; the value.
struct ExpiringValue {
  /// When the value was written and when it expires; nil if it is kept.
  var times: Times?
  var data: Data

  struct Times: Equatable {
    var written: Timestamp
    var expires: Timestamp
  }

  private static let kept = UInt8(ascii: "K")
  private static let expiring = UInt8(ascii: "X")
  private static let headerSize = 1 + 8 + 8

  /// What is stored for a value.
  static func stored(_ data: Data, _ times: Times?) -> Data {
    var stored = Data(capacity: headerSize + data.count)
    stored.append(times == nil ? kept : expiring)
    for time in [times?.written, times?.expires].compactMap(\.self) {
      withUnsafeBytes(of: time.nanoseconds.littleEndian) { stored.append(contentsOf: $0) }
    }
    stored.append(data)
    return stored
  }

  /// - Throws: `StorageError` with code `corrupted` if there is no time in front.
  init(_ stored: Data, key: CacheKey) throws {
    times = try Self.times(of: stored, key: key)
    data = stored.subdata(in: (stored.startIndex + (times == nil ? 1 : Self.headerSize))..<stored.endIndex)
  }

  /// As ``init(_:key:)``, without the value.
  static func times(of stored: Data, key: CacheKey) throws -> Times? {
    try stored.withUnsafeBytes { bytes in
      switch bytes.first {
      case kept: return nil
      case expiring where bytes.count >= headerSize:
        let times = Times(written: time(in: bytes, at: 1), expires: time(in: bytes, at: 9))
        // A corrupted time must not decide what time it is.
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
