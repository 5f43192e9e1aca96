import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The form of a compressed value: a byte that names the method; for ``Method/none`` the value; otherwise the number of bytes of the value
/// as 8 bytes, little endian, and a stream as RFC 1950 (zlib) or a frame as RFC 8878 (zstd) describes it.
struct Compression: Sendable {
  let level: CompressionLevel
  /// The longest value.
  let limit: Int

  /// The bytes differ in two bits, so that no flipped bit makes one of another. "N", "Z" and "S".
  private enum Method: UInt8 {
    case none = 0x4E
    case zlib = 0x5A
    case zstd = 0x53

    /// What values are compressed with.
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

  /// Why something is no compressed value.
  struct Malformed: Error {
    let reason: String
  }

  private static let headerSize = 1 + 8
  /// Fewer bytes do not become fewer by more than what the header takes.
  private static let shortest = 32

  func compress(_ value: Data) throws -> Data {
    guard value.count >= Self.shortest, let compressor = Method.preferred.compressor else {
      return stored(value)
    }
    // No more room than what is worth it: whatever does not fit is stored as it is.
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

  /// What the header says, as far as that is possible.
  func decompressedCount(of stored: Data) -> Int {
    (try? stored.withUnsafeBytes { try header(of: $0).count }) ?? 0
  }

  /// - Throws: ``Malformed``; `StorageError` with code `unsupported` for what this program cannot decompress.
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
      throw Malformed(reason: "its first byte is \(first), which stands for no method of compression")
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

  /// What is thrown for a frame of zstd where there is no zstd.
  private static func unknown(_ frame: Slice<UnsafeRawBufferPointer>) throws -> StorageError {
    guard frame.starts(with: [0x28, 0xB5, 0x2F, 0xFD]) else {
      throw Malformed(reason: "what should be a frame of zstd is none")
    }
    return StorageError(
      .unsupported, "A value is compressed with zstd, which this program was built without (trait Zstandard)."
    )
  }
}

/// A library that compresses.
protocol Compressor {
  /// How many times as long as the compressed bytes a value can be.
  static var largestRatio: Int { get }

  /// Compresses into the room that there is. Nil if that is too small.
  static func compress(
    _ value: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer, _ level: CompressionLevel
  ) throws -> Int?

  /// Decompresses all of the bytes into all of the room.
  ///
  /// - Throws: ``Compression/Malformed`` if they are not the form of so many bytes.
  static func decompress(_ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) throws
}
