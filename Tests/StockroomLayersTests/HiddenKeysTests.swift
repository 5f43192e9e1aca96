#if canImport(CryptoKit) || Encryption
  import Foundation
  import StockroomCore
  import StockroomLayers
  import StockroomMemory
  import StockroomStore
  import Testing

  private let key = CacheKey(verbatim: "k")
  private let value = Data("a secret".utf8)

  @Suite("Hidden keys")
  struct HiddenKeysTests {
    private let base = MemoryStorageEngine()
    private let engine: HiddenKeysEngine<EncryptedEngine<MemoryStorageEngine>>

    init() throws {
      engine = base.encrypted(with: try Keyring(.known("2026")), hidingKeysWith: try .known("names", 1))
    }

    @Test("Names are hidden below and complete above, including the longest")
    func names() async throws {
      let keys = ["k", "user/1", "user/2", "é", "e\u{301}", String(repeating: "x", count: 511)].map(
        CacheKey.init(verbatim:))
      for key in keys { try await engine.write(Data(key.value.utf8), key: key) }
      #expect(try await Set(engine.allKeys()) == Set(keys))
      // Computed by another program from the description of HMAC-SHA-256.
      #expect(try await base.keyExists(.init(verbatim: "5HR6AG9Ub7a828sW887v26pRkRPKPTRxRTULx-rR3ag")))
      for (key, stored) in try await base.readAllDataAndKeys() {
        #expect(key.value.wholeMatch(of: /[A-Za-z0-9_-]{43}/) != nil)
        #expect(keys.allSatisfy { stored.range(of: Data($0.value.utf8)) == nil || $0.value.utf8.count < 4 })
      }
      #expect(try await engine.scan(.prefix("user/"), limit: nil).map(\.key.value) == ["user/1", "user/2"])
      #expect(try await engine.keysExist(keys.reversed()) == keys.reversed())
      await expectError(.invalidKey) { try await engine.write(value, key: .init(verbatim: "")) }
      await expectError(.invalidKey) {
        _ = try await engine.read(key: .init(verbatim: String(repeating: "x", count: 512)))
      }
    }

    @Test("The layer does not claim ordered scans or a feed, which it cannot provide")
    func capabilities() async throws {
      #expect(engine.capabilities == base.capabilities.subtracting([.orderedScans, .changeFeed]))
      await expectError(.unsupported) { _ = try await engine.changes() }
    }

    @Test("With another key for names nothing is found, and with another key for values nothing is read")
    func otherKeys() async throws {
      try await engine.write(value, key: key)
      let other = base.encrypted(with: try Keyring(.known("2026")), hidingKeysWith: try .known("names", 2))
      #expect(try await other.read(key: key) == nil)
      let another = base.encrypted(
        with: try Keyring(.known("2026", 3)), hidingKeysWith: try .known("names", 1))
      await expectError(.permissionDenied) { _ = try await another.read(key: key) }
    }

    @Test("A value from a place with another key for names is corrupted in every listing")
    func otherPlace() async throws {
      let elsewhere = MemoryStorageEngine()
      let other = elsewhere.encrypted(
        with: try Keyring(.known("2026")), hidingKeysWith: try .known("names", 2))
      try await engine.write(value, key: key)
      try await other.write(Data("of another place".utf8), key: key)
      try await base.write(elsewhere.readAllDataAndKeys())
      let ways: [() async throws -> Void] = [
        { _ = try await engine.readAllData() }, { _ = try await engine.readAllDataAndKeys() },
        { _ = try await engine.allKeys() }, { _ = try await engine.readAllEntries() },
        { _ = try await engine.scan(.all, limit: nil) }, { try await engine.verify() },
        { _ = try await engine.withTransaction { try $0.allKeys() } },
        { _ = try await engine.withTransaction { try $0.scan(.all, limit: 1).map(\.key) } },
      ]
      for way in ways { await expectError(.corrupted, from: way) }
      #expect(try await engine.read(key: key) == value)
      #expect(try await engine.read(keys: [key]) == [value])
      #expect(try await engine.readEntries(keys: [key]).map(\.key) == [key])
    }

    @Test("A store works in front of it")
    func store() async throws {
      struct Song: Codable, Sendable, Identifiable, Equatable { let id: String }
      let songs = try await Store<Song>(storage: engine)
      try await songs.insert([Song(id: "1"), Song(id: "2")])
      try await songs.remove(Song(id: "1"))
      let again = try await Store<Song>(storage: engine)
      #expect(await again.items == [Song(id: "2")])
    }
  }
#endif
