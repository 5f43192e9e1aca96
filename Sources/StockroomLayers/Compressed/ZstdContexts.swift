#if Zstandard
  import StockroomCZstd
  import StockroomCore

  /// Contexts that are used one after another: to make one, the library asks the processor what it can do, which takes longer in a virtual
  /// machine than decompressing a short value.
  final class ZstdContexts<Context: ZstdContext>: Sendable {
    private let unused = MutexProtected<[Context]>([])

    /// More of them, and larger ones, are freed.
    private static var maximumCount: Int { 8 }
    private static var maximumSize: Int { 1 << 20 }

    /// A context that nothing else uses. Nil if there is no memory for one.
    func take() -> Context? { unused.withLock { $0.popLast() } ?? Context() }

    func putBack(_ context: Context) {
      guard context.size <= Self.maximumSize else { return }
      unused.withLock { if $0.count < Self.maximumCount { $0.append(context) } }
    }
  }

  /// What the library keeps from call to call. Only one call may use it at a time.
  protocol ZstdContext: AnyObject, Sendable {
    /// Nil if there is no memory.
    init?()
    /// In bytes of memory.
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
