#if canImport(CryptoKit) || Encryption
  import Foundation
  import Observation
  import StockroomCore
  import StockroomLayers
  import StockroomMemory
  import StockroomSQLite
  import Synchronization
  import TestFixtures
  import Testing

  @Suite("Secrets")
  struct SecurelyStoredValueTests {
    private let base = MemoryStorageEngine()

    private func keyring(_ byte: UInt8 = 7) throws -> Keyring {
      try Keyring(EncryptionKey(identifier: "2026", bytes: [UInt8](repeating: byte, count: 32)))
    }

    @Test("A secret is set, read and removed through the property")
    func lifecycle() async throws {
      @SecurelyStoredValue<String>(key: "token", storage: base.encrypted(with: try keyring())) var token
      try await $token.valueHasLoaded()
      #expect(token == nil)
      try await $token.set("s3cret")
      #expect(token == "s3cret")
      #expect(try await $token.get() == "s3cret")
      let stored = try #require(try await base.readAllData().first)
      #expect(stored.range(of: Data("s3cret".utf8)) == nil)
      try await $token.remove()
      #expect(token == nil)
      #expect(try await base.keyCount() == 0)
    }

    @Test("A secret persists across reopening, with hidden names too")
    func reopened() async throws {
      let directory = try TemporaryDirectory()
      let names = try EncryptionKey(identifier: "names", bytes: [UInt8](repeating: 9, count: 32))
      for turn in 0..<2 {
        let engine = try SQLiteStorageEngine(directory: directory.directory)
        let secret = SecurelyStoredValue<[String]>(
          key: "a", storage: engine.encrypted(with: try keyring()))
        let hidden = SecurelyStoredValue<[String]>(
          key: "b", storage: engine.encrypted(with: try keyring(), hidingKeysWith: names))
        for value in [secret, hidden] {
          #expect(try await value.get() == (turn == 0 ? nil : ["first"]))
          try await value.set(["first"])
        }
        try await engine.close()
      }
    }

    @Test("With the wrong key a secret cannot be read, and is not lost")
    func wrongKey() async throws {
      try await SecurelyStoredValue<Int>(key: "pin", storage: base.encrypted(with: keyring())).set(1234)
      let wrong = SecurelyStoredValue<Int>(key: "pin", storage: base.encrypted(with: try keyring(8)))
      let error = await #expect(throws: StorageError.self) { try await wrong.valueHasLoaded() }
      #expect(error?.code == .permissionDenied)
      #expect(wrong.failure?.code == .permissionDenied)
      #expect(wrong.wrappedValue == nil)
      await #expect(throws: StorageError.self) { try await wrong.update { $0 = 1 } }
      let right = SecurelyStoredValue<Int>(key: "pin", storage: base.encrypted(with: try keyring()))
      #expect(try await right.get() == 1234)
    }

    @Test("A secret that cannot be read can be replaced")
    func replacesUnreadable() async throws {
      let (engine, key) = (base.encrypted(with: try keyring()), CacheKey(verbatim: "pin"))
      try await base.encrypted(with: keyring(8)).write(Data("1".utf8), key: key)
      let encrypted = try #require(try await base.read(key: key))
      let cases = [(encrypted, StorageError.Code.permissionDenied), (Data("x".utf8), .corrupted)]
      for (stored, code) in cases {
        try await base.write(stored, key: key)
        let secret = SecurelyStoredValue<Int>(key: "pin", storage: engine)
        let error = await #expect(throws: StorageError.self) { try await secret.valueHasLoaded() }
        #expect(error?.code == code)
        try await secret.set(2)
        #expect(secret.wrappedValue == 2 && secret.failure == nil)
        #expect(try await SecurelyStoredValue<Int>(key: "pin", storage: engine).get() == 2)
      }
    }

    @Test("An update to nil removes the secret, and replacing an element of an absent one stores nothing")
    func updateToNil() async throws {
      let secret = SecurelyStoredValue<[String]>(key: "list", storage: base.encrypted(with: try keyring()))
      try await secret.replace("a", with: "b")
      #expect(try await base.keyCount() == 0)
      try await secret.append("a")
      #expect(try await base.keyCount() == 1)
      try await secret.update { $0 = nil }
      #expect(secret.wrappedValue == nil)
      #expect(try await base.keyCount() == 0)
    }

    @Test("Parts of a secret can be changed, starting from nil")
    func parts() async throws {
      let engine = base.encrypted(with: try keyring())
      let flag = SecurelyStoredValue<Bool>(key: "flag", storage: engine)
      try await flag.toggle()
      #expect(flag.wrappedValue == true)
      try await flag.toggle()
      #expect(flag.wrappedValue == false)
      let list = SecurelyStoredValue<[String]>(key: "list", storage: engine)
      try await list.replace("a", with: "b")
      #expect(list.wrappedValue == nil)
      try await list.append("a")
      try await list.togglePresence("b")
      try await list.replace("a", with: "c")
      #expect(list.wrappedValue == ["c", "b"])
      try await list.togglePresence("b")
      try await list.set(\.[0], to: "d")
      #expect(list.wrappedValue == ["d"])
      try await list.update { $0 = nil }
      #expect(list.wrappedValue == nil)
      let table = SecurelyStoredValue<[String: Int]>(key: "table", storage: engine)
      try await table.update(key: "x", value: 1)
      try await table.update(key: "y", value: 2)
      try await table.update(key: "x", value: nil)
      #expect(table.wrappedValue == ["y": 2])
    }

    @Test("Observers and streams receive every change, including those of others")
    func observed() async throws {
      let engine = base.encrypted(with: try keyring())
      let secret = SecurelyStoredValue<Int>(key: "pin", storage: engine)
      try await secret.valueHasLoaded()
      let changes = Mutex(0)
      withObservationTracking {
        _ = secret.wrappedValue
      } onChange: {
        changes.withLock { $0 += 1 }
      }
      var values = secret.values.makeAsyncIterator()
      #expect(await values.next() == .some(nil))
      try await secret.set(1)
      #expect(changes.withLock { $0 } == 1)
      #expect(await values.next() == .some(1))
      try await SecurelyStoredValue<Int>(key: "pin", storage: engine).set(2)
      #expect(await values.next() == .some(2))
    }
  }
#endif
