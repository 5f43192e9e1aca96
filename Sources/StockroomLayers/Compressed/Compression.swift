import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The format of a stored value. It begins with a byte for the method. For ``Method/none`` the value follows. Otherwise there
/// follow the size of the value in 8 bytes, little-endian, and a zlib stream (RFC 1950) or a zstd frame (RFC 8878).
struct Compression: Sendable {
  let level: CompressionLevel
  /// The maximum size of a value in bytes.
  let limit: Int

  /// "N", "Z" and "S": any two of these bytes differ in at least two bits, so that one flipped bit does not turn one method into
  /// another.
  private enum Method: UInt8 {
    case none = 0x4E
    case zlib = 0x5A
    case zstd = 0x53

    /// The method with which values are compressed.
    static var preferred: Method {
      #if Zstandard
        .zstd
      #else
        .zlib
      #endif
    }

    var compressor: (any Compressor.Type)? {
      switch self {
      case .none: nil
      case .zlib: Zlib.self
      #if Zstandard
        case .zstd: Zstd.self
      #else
        case .zstd: nil
      #endif
      }
    }
  }

  /// The reason why bytes are not a stored value.
  struct Malformed: Error {
    let reason: String
  }

  private static let headerSize = 1 + 8
  /// The minimum size of a value that is compressed. A shorter one would shrink by less than the size of the header.
  private static let shortest = 32

  func compress(_ value: Data) throws -> Data {
    guard value.count >= Self.shortest, let compressor = Method.preferred.compressor else {
      return stored(value)
    }
    // The buffer has the size of the value. If the header and the compressed bytes do not fit, the value is stored uncompressed.
    let room = value.count - Self.headerSize
    var result = Data(count: Self.headerSize + room)
    let compressed = try result.withUnsafeMutableBytes { target in
      try value.withUnsafeBytes {
        try compressor.compress(
          $0, into: UnsafeMutableRawBufferPointer(rebasing: target[Self.headerSize...]), level)
      }
    }
    guard let compressed else { return stored(value) }
    result.removeLast(room - compressed)
    result.withUnsafeMutableBytes { target in
      target[0] = Method.preferred.rawValue
      target.storeBytes(of: UInt64(value.count).littleEndian, toByteOffset: 1, as: UInt64.self)
    }
    return result
  }

  private func stored(_ value: Data) -> Data {
    var result = Data(capacity: value.count + 1)
    result.append(Method.none.rawValue)
    result.append(value)
    return result
  }

  /// The size that the header specifies; 0 if the header is not valid.
  func decompressedCount(of stored: Data) -> Int {
    (try? stored.withUnsafeBytes { try header(of: $0).count }) ?? 0
  }

  /// - Throws: ``Malformed``; `StorageError` with code `unsupported` if this program was built without the method, `io` if there is
  ///   not enough memory.
  func decompress(_ stored: Data) throws -> Data {
    try stored.withUnsafeBytes { source in
      let (compressor, size) = try header(of: source)
      guard let compressor else { return Data(source[1...]) }
      var value = Data(count: size)
      try value.withUnsafeMutableBytes {
        try compressor.decompress(UnsafeRawBufferPointer(rebasing: source[Self.headerSize...]), into: $0)
      }
      return value
    }
  }

  private func header(
    of source: UnsafeRawBufferPointer
  ) throws -> (compressor: (any Compressor.Type)?, count: Int) {
    guard let first = source.first else {
      throw Malformed(reason: "it has no byte that says how it is stored")
    }
    guard let method = Method(rawValue: first) else {
      throw Malformed(reason: "its first byte is \(first), which is not a known method of compression")
    }
    if method == .none { return (nil, source.count - 1) }
    guard source.count > Self.headerSize else { throw Malformed(reason: "it ends within its header") }
    guard let compressor = method.compressor else { throw try Self.unknown(source[Self.headerSize...]) }
    let count = UInt64(littleEndian: source.loadUnaligned(fromByteOffset: 1, as: UInt64.self))
    let most = min(limit, (source.count - Self.headerSize) * compressor.largestRatio)
    guard count <= most else {
      throw Malformed(reason: "its header says \(count) bytes, and it has \(most) at most")
    }
    return (compressor, Int(count))
  }

  /// The error for a zstd frame in a program that was built without zstd.
  ///
  /// - Throws: ``Malformed`` if the bytes are not a zstd frame.
  private static func unknown(_ frame: Slice<UnsafeRawBufferPointer>) throws -> StorageError {
    guard frame.starts(with: [0x28, 0xB5, 0x2F, 0xFD]) else {
      throw Malformed(reason: "it is not a zstd frame")
    }
    return StorageError(
      .unsupported, "A value is compressed with zstd, which this program was built without (trait Zstandard)."
    )
  }
}

/// A compression library.
protocol Compressor {
  /// The maximum ratio of the size of a value to the size of its compressed bytes.
  static var largestRatio: Int { get }

  /// Compresses the value into `target`. Returns the number of compressed bytes, or nil if they do not fit.
  static func compress(
    _ value: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer, _ level: CompressionLevel
  ) throws -> Int?

  /// Decompresses the bytes. The result must fill `target`.
  ///
  /// - Throws: ``Compression/Malformed`` if the bytes do not decompress to exactly that size; `StorageError` with code `io` if
  ///   there is not enough memory.
  static func decompress(_ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) throws
}
