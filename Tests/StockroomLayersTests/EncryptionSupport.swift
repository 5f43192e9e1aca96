#if canImport(CryptoKit) || Encryption
  import StockroomCore
  import StockroomLayers
  import Testing

  extension EncryptionKey {
    /// A key that is the same in every run.
    static func known(_ identifier: String, _ byte: UInt8 = 7) throws -> EncryptionKey {
      try EncryptionKey(identifier: identifier, bytes: [UInt8](repeating: byte, count: 32))
    }
  }

  /// Expects `work` to throw a `StorageError` with this code.
  func expectError(
    _ code: StorageError.Code, _ location: SourceLocation = #_sourceLocation,
    from work: () async throws -> Void
  ) async {
    let error = await #expect(throws: StorageError.self, sourceLocation: location) { try await work() }
    #expect(error?.code == code, sourceLocation: location)
  }
#endif
