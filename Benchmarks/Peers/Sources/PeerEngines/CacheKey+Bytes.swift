import StockroomCore

extension CacheKey {
  /// Calls `body` with the bytes of the key, without copying them if they are contiguous.
  func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    if let result = try value.utf8.withContiguousStorageIfAvailable({ try body(UnsafeRawBufferPointer($0)) })
    {
      return result
    }
    return try Array(value.utf8).withUnsafeBytes(body)
  }

  /// The key that was stored as these bytes.
  init(bytes: UnsafeRawBufferPointer) { self.init(verbatim: String(decoding: bytes, as: UTF8.self)) }
}
