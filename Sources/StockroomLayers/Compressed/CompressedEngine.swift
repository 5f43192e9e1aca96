public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores values compressed. ``StockroomCore/StorageEngine/compressed(level:maximumValueSize:)`` returns it.
///
/// Every stored value begins with a byte that identifies its format, so a place can contain values of all formats. A value that does not
/// shrink is stored uncompressed, one byte longer. Keys, timestamps and order are unchanged.
///
/// Stored values carry the checksum of their format, so a changed one is reported as `corrupted` with few exceptions (Adler-32 with zlib, 32
/// bits of XXH64 with zstd; no checksum for uncompressed values). Therefore the layer claims no more capabilities than the engine below.
///
/// A stored value that would decompress to more than ``maximumValueSize``, or to more than its bytes can contain, is reported as `corrupted`
/// before memory is allocated for it.
public struct CompressedEngine<Base: StorageEngine>: ValueLayer {
  /// The engine that keeps the compressed values.
  public let base: Base
  /// The longest value in bytes, uncompressed.
  public let maximumValueSize: Int
  private let compression: Compression

  init(base: Base, level: CompressionLevel, maximumValueSize: Int) {
    self.base = base
    self.maximumValueSize = max(0, maximumValueSize)
    compression = Compression(level: level, limit: self.maximumValueSize)
  }

  /// The value as it is stored.
  ///
  /// - Throws: `StorageError` with code `valueTooLarge` beyond ``maximumValueSize``.
  public func encode(_ value: Data, key: CacheKey) throws -> Data {
    guard value.count <= maximumValueSize else {
      throw StorageError(
        .valueTooLarge,
        "The value of \(key) has \(value.count) bytes, and at most \(maximumValueSize) are compressed.")
    }
    return try compression.compress(value)
  }

  /// The value that was stored.
  ///
  /// - Throws: `StorageError` with code `corrupted` if this layer has not stored it so, `unsupported` if it is compressed with zstd and the
  ///   program has none.
  public func decode(_ stored: Data, key: CacheKey) throws -> Data {
    do {
      return try compression.decompress(stored)
    } catch let error as Compression.Malformed {
      throw StorageError(.corrupted, "The value of \(key) cannot be decompressed: \(error.reason).")
    }
  }

  /// What the stored value says.
  public func decodedCount(of stored: Data) -> Int { compression.decompressedCount(of: stored) }
}

extension StorageEngine {
  /// This engine, with values stored compressed: by zstd in a package that has the trait `Zstandard`, otherwise by zlib. See
  /// ``CompressedEngine``.
  ///
  /// Costs processor time in proportion to the value. A megabyte of JSON took 6 ms to compress at the level `fast`, 30 ms at `default`
  /// and 80 ms at `small`, and 2 ms to decompress, on one core of a virtual machine.
  ///
  /// - Parameters:
  ///   - level: What to spend on it. Values of all levels can be read with any.
  ///   - maximumValueSize: The longest value in bytes; a longer one throws `valueTooLarge`. So much memory can the reading of one value
  ///     take, whatever somebody has put into the place.
  public func compressed(
    level: CompressionLevel = .default, maximumValueSize: Int = 256 << 20
  ) -> CompressedEngine<Self> {
    CompressedEngine(base: self, level: level, maximumValueSize: maximumValueSize)
  }
}

/// How much processor time is spent on small values.
public enum CompressionLevel: Sendable, CaseIterable {
  /// The least time: level 1 of zlib and of zstd.
  case fast
  /// Level 6 of zlib, 3 of zstd.
  case `default`
  /// The least room: level 9 of zlib, 19 of zstd.
  case small
}
