#if canImport(CryptoKit) || Encryption
  import Foundation
  import StockroomCore
  import StockroomKitSupport
  import StockroomMemory
  import StockroomSQLite
  import StockroomTestSupport
  import TestFixtures
  import Testing

  @testable import StockroomLayers

  private struct WithoutTransactions: StorageLayer {
    let base: MemoryStorageEngine
    var capabilities: EngineCapabilities { base.capabilities.subtracting(.transactions) }
  }

  private let key = CacheKey(verbatim: "k")
  private let value = Data("a secret".utf8)

  @Suite("Encrypted values")
  struct EncryptedEngineTests {
    private let base = MemoryStorageEngine()
    private let engine: EncryptedEngine<MemoryStorageEngine>

    init() throws { engine = base.encrypted(with: try Keyring(.known("2026"))) }

    @Test("Values of every length are preserved, and stored with 74 bytes and the key's name more")
    func roundTrip() async throws {
      for count in [0, 1, 15, 16, 17, 1_000, 200_000, 3 << 20] {
        let value = Data((0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        try await engine.write(value, key: key)
        let found = try #require(try await engine.read(key: key))
        #expect(found == value)
        #expect(found.startIndex == 0)
        #expect(try await base.read(key: key)?.count == count + 74 + 4)
      }
    }

    @Test("A stored value reveals neither its contents nor equality with another, and has a nonce of its own")
    func revealsNothing() async throws {
      for number in 0..<10_000 {
        try await engine.write(value, key: .init(verbatim: "\(number)"))
      }
      let stored = try await base.readAllData()
      // A reused nonce discloses both values.
      #expect(Set(stored.map { $0.dropFirst(2 + 4 + 40 + 4).prefix(12) }).count == 10_000)
      #expect(Set(stored.map { $0.suffix(16) }).count == 10_000)
      #expect(stored.allSatisfy { $0.range(of: value) == nil })
    }

    @Test("A value that another program has written by the format's description can be read")
    func vector() async throws {
      let stored = try #require(
        Data(
          base64Encoded:
            "AQQyMDI2Cyo00oQzEQ0TMEmGdKp4L+XKkK56YZcei1rMTBFyxZ/vl/Q+EL/GSBZykhFkZWZnaGlqa2xtbm8pO60DGpsz6kObZEKq"
            + "mFOvPs4WRDkhy20="
        ))
      try await base.write(stored, key: key)
      #expect(try await engine.read(key: key) == value)
    }

    @Test("A data key encrypts a limited number of values, and all of them can be read")
    func uses() throws {
      let cipher = ValueCipher(keyring: try Keyring(.known("2026")), mostUses: 10)
      let stored = try (0..<25).map { _ in try cipher.encrypt(value, key: key) }
      let headers = stored.map { $0.prefix(50) }
      #expect(Set(headers).count == 3)
      #expect(Set(headers[0..<10]).count == 1 && Set(headers[10..<20]).count == 1)
      for one in stored { #expect(try engine.decode(one, key: key) == value) }
      #expect(ValueCipher.mostUses == 1 << 32)
    }

    @Test("Every change, swap and truncation of stored values is detected without a trap")
    func tampering() async throws {
      var random = SeededRandom(seed: 20)
      let keys = (0..<50).map { CacheKey(verbatim: "key \($0)") }
      for (number, key) in keys.enumerated() {
        try await engine.write(Data((0..<number * 7).map { UInt8(truncatingIfNeeded: $0) }), key: key)
      }
      let stored = try await base.readAllDataAndKeys()
      var codes: [StorageError.Code: Int] = [:]
      let count = 100_000
      for _ in 0..<count {
        let (key, original) = stored.randomElement(using: &random) ?? stored[0]
        var changed = original
        switch Int.random(in: 0..<6, using: &random) {
        case 0:
          changed[Int.random(in: 0..<changed.count, using: &random)] ^=
            1 << UInt8.random(in: 0..<8, using: &random)
        case 1: changed = changed.prefix(Int.random(in: 0..<changed.count, using: &random))
        case 2: changed = changed.dropFirst(Int.random(in: 1...changed.count, using: &random))
        case 3: changed = stored.randomElement(using: &random)?.data ?? changed
        case 4: changed.append(UInt8.random(in: .min ... .max, using: &random))
        default:
          changed = Data(
            (0..<Int.random(in: 0..<200, using: &random)).map { _ in
              UInt8.random(in: .min ... .max, using: &random)
            })
          if !changed.isEmpty, Bool.random(using: &random) { changed[0] = 1 }
        }
        if changed == original { continue }
        do {
          _ = try engine.decode(changed, key: key)
          Issue.record("Not found: \(changed.base64EncodedString()) under \(key)")
        } catch let error as StorageError {
          codes[error.code, default: 0] += 1
        }
      }
      #expect(Set(codes.keys) == [.corrupted])
      #expect(codes[.corrupted, default: 0] > count * 19 / 20)
    }

    @Test("A changed value is corrupted for every read method")
    func everyWay() async throws {
      try await engine.write(value, key: key)
      var stored = try #require(try await base.read(key: key))
      stored[stored.count - 1] ^= 1
      try await base.write(stored, key: key)
      let ways: [() async throws -> Void] = [
        { _ = try await engine.read(key: key) }, { _ = try await engine.read(keys: [key]) },
        { _ = try await engine.readAllEntries() }, { _ = try await engine.scan(.all, limit: 1) },
        { _ = try await engine.withTransaction { try $0.read(key: key) } }, { try await engine.verify() },
        {
          _ = try await base.encrypted(with: Keyring(.known("2027"), previous: [.known("2026")])).reencrypt()
        },
      ]
      for way in ways { await expectError(.corrupted, from: way) }
      #expect(try await base.read(key: key) == stored)
    }

    /// A value whose header has a valid checksum after a change of the key's name or the wrapped key.
    private func forged(_ stored: Data, name: String, flippingBitOf byte: Int? = nil) -> Data {
      var header = [1, UInt8(name.utf8.count)] + Array(name.utf8)
      header += stored.dropFirst(2 + 4).prefix(40)
      if let byte { header[byte] ^= 1 }
      let checksum = CRC32C.checksum(header)
      withUnsafeBytes(of: checksum.littleEndian) { header.append(contentsOf: $0) }
      return Data(header) + stored.dropFirst(2 + 4 + 40 + 4)
    }

    @Test("A header with another name or wrapped key, and a valid checksum, is refused")
    func forgedHeaders() async throws {
      try await engine.write(value, key: key)
      let stored = try #require(try await base.read(key: key))
      #expect(forged(stored, name: "2026") == stored)
      for length in [0, 33, 255] {
        try await base.write(forged(stored, name: String(repeating: "x", count: length)), key: key)
        await expectError(.corrupted) { _ = try await engine.read(key: key) }
      }
      // The checksum is not keyed, so these look like values of other encryption keys.
      let values = [
        forged(stored, name: "2027"), forged(stored, name: String(repeating: "x", count: 32)),
        forged(stored, name: "2026", flippingBitOf: 2 + 4),
      ]
      for value in values {
        try await base.write(value, key: key)
        await expectError(.permissionDenied) { _ = try await engine.read(key: key) }
      }
      try await base.write(forged(stored, name: "a\n\u{1B}[2J"), key: key)
      let error = await #expect(throws: StorageError.self) { try await engine.read(key: key) }
      let message = try #require(error).message
      #expect(message.contains(#""a\n"#) && !message.contains("\n") && !message.contains("\u{1B}"))
    }

    @Test("A value stored without encryption is not an encrypted value")
    func plain() async throws {
      try await base.write(value, key: key)
      await expectError(.corrupted) { _ = try await engine.read(key: key) }
    }

    @Test("A missing key, or a different key with the same name, is refused and changes nothing")
    func wrongKey() async throws {
      try await engine.write(value, key: key)
      for keyring in [try Keyring(.known("2027")), try Keyring(.known("2026", 8))] {
        let other = base.encrypted(with: keyring)
        await expectError(.permissionDenied) { _ = try await other.read(key: key) }
        await expectError(.permissionDenied) { try await other.verify() }
        await expectError(.permissionDenied) { _ = try await other.readAllDataAndKeys() }
      }
      #expect(try await engine.read(key: key) == value)
    }

    @Test("After a rotation values of both keys are read; after re-encryption the old key is not needed")
    func rotation() async throws {
      let old = (0..<2_500).map { CacheKey(verbatim: "old \($0)") }
      try await engine.write(old.map { ($0, value) })
      let rotated = base.encrypted(with: try Keyring(.known("2027", 9), previous: [.known("2026")]))
      try await rotated.write(Data("new".utf8), key: key)
      #expect(try await rotated.read(key: old[0]) == value)

      let seen = MutexProtected<[Int]>([])
      let rewritten = try await rotated.reencrypt { done, total in
        #expect(total == 2_501)
        seen.withLock { $0.append(done) }
      }
      #expect(rewritten == 2_500)
      #expect(seen.withLock { $0.last } == 2_501)
      #expect(seen.withLock { $0 == $0.sorted() && $0.count > 1 })
      #expect(try await rotated.reencrypt() == 0)

      let alone = base.encrypted(with: try Keyring(.known("2027", 9)))
      #expect(try await alone.read(keys: old) == Array(repeating: value, count: old.count))
      await expectError(.permissionDenied) { _ = try await engine.read(key: key) }
    }

    @Test(
      "A value that cannot be decrypted does not stop re-encryption, and is reported at its end",
      arguments: [StorageError.Code.corrupted, .permissionDenied])
    func rotationBesideUnreadable(code: StorageError.Code) async throws {
      let keys = (0..<300).map { CacheKey(verbatim: "\($0)") }
      try await engine.write(keys.map { ($0, value) })
      if code == .corrupted {
        try await base.write(value, key: keys[0])
      } else {
        try await base.encrypted(with: Keyring(.known("lost"))).write(value, key: keys[0])
      }
      let left = try await base.read(key: keys[0])
      let failing = FailingStorageEngine(base)
      let rotated = failing.encrypted(with: try Keyring(.known("2027", 9), previous: [.known("2026")]))
      let seen = MutexProtected(0)
      var found: StorageError.Code?
      do {
        try await rotated.reencrypt { done, _ in seen.withLock { $0 = done } }
      } catch let error as StorageError {
        found = error.code
      }
      #expect(found == code)
      #expect(seen.withLock { $0 } == 300)
      #expect(failing.calls.count { $0.method == .withTransaction } == 3)
      let alone = base.encrypted(with: try Keyring(.known("2027", 9)))
      #expect(try await alone.read(keys: Array(keys.dropFirst())).count == 299)
      #expect(try await base.read(key: keys[0]) == left)
    }

    @Test(
      "A value of an unknown key does not prevent the removal of expired values", arguments: [true, false])
    func expiryBesideForeignKey(isOnDemand: Bool) async throws {
      let clock = HandSetClock()
      let expiring = engine.expiring(after: .seconds(60), clock: clock.clock)
      let first = CacheKey(verbatim: "a")
      try await expiring.write((0..<100).map { (CacheKey(verbatim: "b\($0)"), value) })
      try await base.encrypted(with: Keyring(.known("lost"))).write(value, key: first)
      clock.advance(60)
      if isOnDemand {
        await expectError(.permissionDenied) { _ = try await expiring.removeExpired() }
        #expect(try await base.allKeys() == [first])
      } else {
        for number in 0..<400 {
          try await expiring.write(value, key: CacheKey(verbatim: "new\(number % 10)"), expiresAfter: nil)
        }
        #expect(try await base.keyCount() == 11)
      }
    }

    @Test("Re-encryption does not overwrite concurrent writes")
    func rotationBesideWrites() async throws {
      let keys = (0..<3_000).map { CacheKey(verbatim: "\($0)") }
      try await engine.write(keys.map { ($0, Data("before".utf8)) })
      let rotated = base.encrypted(with: try Keyring(.known("2027"), previous: [.known("2026")]))
      async let rewriting = rotated.reencrypt()
      for key in keys.reversed() { try await rotated.write(Data("after".utf8), key: key) }
      _ = try await rewriting
      #expect(try await Set(rotated.readAllData()) == [Data("after".utf8)])
    }

    @Test("Re-encryption requires transactions")
    func withoutTransactions() async throws {
      let plain = WithoutTransactions(base: base)
      await expectError(.unsupported) {
        _ = try await plain.encrypted(with: Keyring(.known("a"))).reencrypt()
      }
    }

    @Test("Re-encryption does not extend lifetimes")
    func expiringBelow() async throws {
      let clock = HandSetClock()
      let expiring = base.expiring(after: .seconds(60), clock: clock.clock)
      try await expiring.encrypted(with: Keyring(.known("2026"))).write(value, key: key)
      clock.advance(50)
      let rotated = expiring.encrypted(with: try Keyring(.known("2027"), previous: [.known("2026")]))
      await expectError(.unsupported) { _ = try await rotated.reencrypt() }
      #expect(try await rotated.read(key: key) == value)
      clock.advance(20)
      #expect(try await rotated.read(key: key) == nil)
    }

    @Test("Values on disk are read by another engine with the same key, and are not stored as plaintext")
    func onDisk() async throws {
      let directory = try TemporaryDirectory()
      func open() throws -> EncryptedEngine<SQLiteStorageEngine> {
        try SQLiteStorageEngine(directory: .init(url: directory.url)).encrypted(with: Keyring(.known("2026")))
      }
      let first = try open()
      try await first.write(value, key: key)
      try await first.close()
      for file in try FileManager.default.contentsOfDirectory(
        at: directory.url, includingPropertiesForKeys: nil)
      {
        #expect(try Data(contentsOf: file).range(of: value) == nil)
      }
      let second = try open()
      #expect(try await second.read(key: key) == value)
      try await second.close()
    }
  }
#endif
