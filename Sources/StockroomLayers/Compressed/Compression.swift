import StockroomCZlib
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The form of a compressed value: a byte that names the method; for ``Method/zlib`` the number of bytes of the value as 8 bytes, little
/// endian, and a stream as RFC 1950 describes it; for ``Method/none`` the value.
struct Compression: Sendable {
  let level: CompressionLevel
  /// The longest value.
  let limit: Int

  /// The bytes differ in two bits, so that no flipped bit makes one of the other. "N" and "Z".
  private enum Method: UInt8 {
    case none = 0x4E
    case zlib = 0x5A
  }

  /// Why something is no compressed value.
  struct Malformed: Error {
    let reason: String
  }

  private static let headerSize = 1 + 8
  /// "The asymptotic limit is 1032:1" (zlib's technical details), and a few bytes.
  private static let largestRatio = 1_032
  /// Fewer bytes do not become fewer by more than what the header takes.
  private static let shortest = 32

  func compress(_ value: Data) throws -> Data {
    guard value.count >= Self.shortest else { return stored(value) }
    // No more room than what is worth it: whatever does not fit is stored as it is.
    let room = value.count - Self.headerSize
    var result = Data(count: Self.headerSize + room)
    var count = uLongf(room)
    let status = result.withUnsafeMutableBytes { target in
      value.withUnsafeBytes { source in
        compress2(
          target.baseAddress?.advanced(by: Self.headerSize).assumingMemoryBound(to: Bytef.self), &count,
          source.baseAddress?.assumingMemoryBound(to: Bytef.self), uLong(source.count), Int32(level.rawValue))
      }
    }
    switch status {
    case Z_OK: break
    case Z_BUF_ERROR: return stored(value)
    default: throw StorageError(.io, "zlib cannot compress \(value.count) bytes (\(status)).")
    }
    result.removeLast(room - Int(count))
    result.withUnsafeMutableBytes { target in
      target[0] = Method.zlib.rawValue
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

  /// - Throws: ``Malformed``.
  func decompress(_ stored: Data) throws -> Data {
    try stored.withUnsafeBytes { source in
      let (method, size) = try header(of: source)
      if method == .none { return Data(source[1...]) }
      var value = Data(count: size)
      var (count, used) = (uLongf(size), uLong(source.count - Self.headerSize))
      let given = used
      let status = value.withUnsafeMutableBytes { target in
        uncompress2(
          target.baseAddress?.assumingMemoryBound(to: Bytef.self), &count,
          source.baseAddress?.advanced(by: Self.headerSize).assumingMemoryBound(to: Bytef.self), &used)
      }
      switch status {
      case Z_OK: break
      case Z_MEM_ERROR: throw StorageError(.io, "There is no memory to decompress \(size) bytes.")
      default: throw Malformed(reason: "zlib finds an error in \(source.count) bytes")
      }
      guard count == size, used == given else {
        throw Malformed(reason: "its header says \(size) bytes, and there are others")
      }
      return value
    }
  }

  private func header(of source: UnsafeRawBufferPointer) throws -> (method: Method, count: Int) {
    guard let first = source.first else {
      throw Malformed(reason: "it has no byte that says how it is stored")
    }
    guard let method = Method(rawValue: first) else {
      throw Malformed(reason: "its first byte is \(first), which says nothing")
    }
    guard method == .zlib else { return (method, source.count - 1) }
    guard source.count > Self.headerSize else { throw Malformed(reason: "it ends within its header") }
    let count = UInt64(littleEndian: source.loadUnaligned(fromByteOffset: 1, as: UInt64.self))
    let most = min(limit, (source.count - Self.headerSize) * Self.largestRatio)
    guard count <= most else {
      throw Malformed(reason: "its header says \(count) bytes, and it has \(most) at most")
    }
    return (method, Int(count))
  }
}
