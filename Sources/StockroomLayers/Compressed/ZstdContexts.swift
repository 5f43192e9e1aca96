#if Zstandard
  import StockroomCZstd
  import StockroomCore

  /// A pool of contexts. When the library creates a context, it queries the features of the processor, which takes longer in a
  /// virtual machine than decompressing a short value.
  final class ZstdContexts<Context: ZstdContext>: Sendable {
    private let unused = MutexProtected<[Context]>([])

    /// Contexts beyond this number, and larger contexts, are freed instead of kept.
    private static var maximumCount: Int { 8 }
    private static var maximumSize: Int { 1 << 20 }

    /// Takes a context from the pool, or creates one. Nil if there is not enough memory.
    func take() -> Context? { unused.withLock { $0.popLast() } ?? Context() }

    func putBack(_ context: Context) {
      guard context.size <= Self.maximumSize else { return }
      unused.withLock { if $0.count < Self.maximumCount { $0.append(context) } }
    }
  }

  /// The state that the library reuses from call to call. Only one call may use it at a time, which the pool ensures.
  protocol ZstdContext: AnyObject, Sendable {
    /// Returns nil if there is not enough memory.
    init?()
    /// The memory that the context takes, in bytes.
    var size: Int { get }
  }

  final class ZstdCompressionContext: ZstdContext, @unchecked Sendable {
    let pointer: OpaquePointer

    init?() {
      guard let pointer = ZSTD_createCCtx() else { return nil }
      self.pointer = pointer
    }

    deinit { ZSTD_freeCCtx(pointer) }

    var size: Int { ZSTD_sizeof_CCtx(pointer) }
  }

  final class ZstdDecompressionContext: ZstdContext, @unchecked Sendable {
    let pointer: OpaquePointer

    init?() {
      guard let pointer = ZSTD_createDCtx() else { return nil }
      self.pointer = pointer
    }

    deinit { ZSTD_freeDCtx(pointer) }

    var size: Int { ZSTD_sizeof_DCtx(pointer) }
  }
#endif
