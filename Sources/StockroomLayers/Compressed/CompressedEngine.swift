public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores values compressed. ``StockroomCore/StorageEngine/compressed(level:maximumValueSize:)`` returns it.
///
/// Every stored value begins with a byte that identifies its format, so a place can contain values of all formats. A value that
/// does not shrink is stored uncompressed, one byte longer. Keys, timestamps and order are unchanged.
///
/// A compressed value contains the checksum of its format, so almost every change of it is reported as `corrupted`: Adler-32 with
/// zlib, 32 bits of XXH64 with zstd. A value that is stored uncompressed has no checksum. Therefore the layer claims no more
/// capabilities than the engine below.
///
/// A compressed value whose header specifies a size of more than ``maximumValueSize``, or of more than its bytes can decompress to,
/// is reported as `corrupted` before memory is allocated for it.
public struct CompressedEngine<Base: StorageEngine>: ValueLayer {
  /// The engine that keeps the compressed values.
  public let base: Base
  /// The maximum size of a value in bytes, before it is compressed.
  public let maximumValueSize: Int
  private let compression: Compression

  init(base: Base, level: CompressionLevel, maximumValueSize: Int) {
    self.base = base
    self.maximumValueSize = max(0, maximumValueSize)
    compression = Compression(level: level, limit: self.maximumValueSize)
  }

  /// Compresses the value.
  ///
  /// - Throws: `StorageError` with code `valueTooLarge` if the value is larger than ``maximumValueSize``, `io` if the library
  ///   fails, such as for lack of memory.
  public func encode(_ value: Data, key: CacheKey) throws -> Data {
    guard value.count <= maximumValueSize else {
      throw StorageError(
        .valueTooLarge,
        "The value of \(key) has \(value.count) bytes, and at most \(maximumValueSize) are compressed.")
    }
    return try compression.compress(value)
  }

  /// Decompresses a stored value.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the bytes are not a value that this layer has stored, `unsupported` if they
  ///   are compressed with zstd and the program was built without it, `io` if there is not enough memory.
  public func decode(_ stored: Data, key: CacheKey) throws -> Data {
    do {
      return try compression.decompress(stored)
    } catch let error as Compression.Malformed {
      throw StorageError(.corrupted, "The value of \(key) cannot be decompressed: \(error.reason).")
    }
  }

  /// The size that the header of the stored value specifies; 0 if the header is not valid.
  public func decodedCount(of stored: Data) -> Int { compression.decompressedCount(of: stored) }
}

extension StorageEngine {
  /// This engine, with values stored compressed: by zstd in a package that enables the trait `Zstandard`, otherwise by zlib. See
  /// ``CompressedEngine``.
  ///
  /// Costs processor time proportional to the size of the value. A megabyte of JSON took 6 ms to compress at the level `fast`, 30
  /// ms at `default` and 80 ms at `small`, and 2 ms to decompress, on one core of a virtual machine.
  ///
  /// - Parameters:
  ///   - level: How much processor time to spend. Values that were compressed at one level can be read at any other.
  ///   - maximumValueSize: The maximum size of a value in bytes; writing a larger one throws `valueTooLarge`. A value never
  ///     decompresses to more than this, whatever bytes are in the place.
  public func compressed(
    level: CompressionLevel = .default, maximumValueSize: Int = 256 << 20
  ) -> CompressedEngine<Self> {
    CompressedEngine(base: self, level: level, maximumValueSize: maximumValueSize)
  }
}

/// How much processor time is spent to make values smaller.
public enum CompressionLevel: Sendable, CaseIterable {
  /// The least processor time: level 1 of zlib and of zstd.
  case fast
  /// Level 6 of zlib, 3 of zstd.
  case `default`
  /// The smallest result: level 9 of zlib, 19 of zstd.
  case small
}
