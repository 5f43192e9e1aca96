#if Zstandard
  import StockroomCZstd
  import StockroomCore

  enum Zstd: Compressor {
    /// A block of 4 bytes can represent 128 KiB of the same byte (RFC 8878, section 3.1.1.2).
    static let largestRatio = 32_768

    private static let compressors = ZstdContexts<ZstdCompressionContext>()
    private static let decompressors = ZstdContexts<ZstdDecompressionContext>()

    static func compress(
      _ value: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer, _ level: CompressionLevel
    ) throws -> Int? {
      guard let context = compressors.take() else { throw noMemory(value.count) }
      defer { compressors.putBack(context) }
      let pointer = context.pointer
      // Discards the state of an earlier compression whose result did not fit.
      ZSTD_CCtx_reset(pointer, ZSTD_reset_session_only)
      ZSTD_CCtx_setParameter(pointer, ZSTD_c_compressionLevel, level.zstd)
      ZSTD_CCtx_setParameter(pointer, ZSTD_c_checksumFlag, 1)
      let count = ZSTD_compress2(pointer, target.baseAddress, target.count, value.baseAddress, value.count)
      guard ZSTD_isError(count) != 0 else { return count }
      if ZSTD_getErrorCode(count) == ZSTD_error_dstSize_tooSmall { return nil }
      throw StorageError(.io, "zstd cannot compress \(value.count) bytes: \(name(of: count)).")
    }

    static func decompress(
      _ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer
    ) throws {
      guard let context = decompressors.take() else { throw noMemory(target.count) }
      defer { decompressors.putBack(context) }
      let count = ZSTD_decompressDCtx(
        context.pointer, target.baseAddress, target.count, bytes.baseAddress, bytes.count)
      if ZSTD_isError(count) != 0 {
        if ZSTD_getErrorCode(count) == ZSTD_error_memory_allocation { throw noMemory(target.count) }
        throw Compression.Malformed(reason: "zstd finds an error in \(bytes.count) bytes: \(name(of: count))")
      }
      guard count == target.count else {
        throw Compression.Malformed(
          reason: "it does not decompress to the \(target.count) bytes in its header")
      }
    }

    private static func name(of error: Int) -> String { String(cString: ZSTD_getErrorName(error)) }

    private static func noMemory(_ count: Int) -> StorageError {
      StorageError(.io, "zstd has not enough memory for \(count) bytes.")
    }
  }

  extension CompressionLevel {
    fileprivate var zstd: Int32 {
      switch self {
      case .fast: 1
      case .default: 3
      case .small: 19
      }
    }
  }
#endif
