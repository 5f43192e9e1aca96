import StockroomCZlib
import StockroomCore

enum Zlib: Compressor {
  /// "The asymptotic limit is 1032:1" (zlib's technical details). A few bytes of overhead make the actual ratio smaller.
  static let largestRatio = 1_032

  static func compress(
    _ value: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer, _ level: CompressionLevel
  ) throws -> Int? {
    var count = uLongf(target.count)
    let status = compress2(
      target.baseAddress?.assumingMemoryBound(to: Bytef.self), &count,
      value.baseAddress?.assumingMemoryBound(to: Bytef.self), uLong(value.count), level.zlib)
    switch status {
    case Z_OK: return Int(count)
    case Z_BUF_ERROR: return nil
    default: throw StorageError(.io, "zlib cannot compress \(value.count) bytes (\(status)).")
    }
  }

  static func decompress(
    _ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer
  ) throws {
    var (count, used) = (uLongf(target.count), uLong(bytes.count))
    let status = uncompress2(
      target.baseAddress?.assumingMemoryBound(to: Bytef.self), &count,
      bytes.baseAddress?.assumingMemoryBound(to: Bytef.self), &used)
    switch status {
    case Z_OK: break
    case Z_MEM_ERROR:
      throw StorageError(.io, "There is not enough memory to decompress \(target.count) bytes.")
    default: throw Compression.Malformed(reason: "zlib finds an error in \(bytes.count) bytes")
    }
    guard count == target.count, used == bytes.count else {
      throw Compression.Malformed(reason: "it does not decompress to the \(target.count) bytes in its header")
    }
  }
}

extension CompressionLevel {
  fileprivate var zlib: Int32 {
    switch self {
    case .fast: 1
    case .default: 6
    case .small: 9
    }
  }
}
