#if canImport(CryptoKit) || Encryption
  import Foundation
  import StockroomCore
  import StockroomLayers
  import StockroomMemory
  import TestFixtures
  import Testing

  private let key = CacheKey(verbatim: "k")
  private let value = Data("a secret".utf8)

  @Suite("Encryption keys")
  struct EncryptionKeyTests {
    @Test("A key has 32 bytes and a name of 1 to 32, and names in a keyring are unique")
    func sizes() async throws {
      for count in [0, 16, 31, 33] {
        await expectError(.unsupported) {
          _ = try EncryptionKey(identifier: "a", bytes: [UInt8](repeating: 0, count: count))
        }
      }
      for name in ["", String(repeating: "x", count: 33)] {
        await expectError(.unsupported) { _ = try EncryptionKey.random(identifier: name) }
      }
      await expectError(.unsupported) { _ = try Keyring(.known("a"), previous: [.random(identifier: "a")]) }
      let longest = try EncryptionKey.random(identifier: String(repeating: "x", count: 32))
      let engine = MemoryStorageEngine().encrypted(with: try Keyring(longest))
      try await engine.write(value, key: key)
      #expect(try await engine.read(key: key) == value)
    }

    @Test("No description of a key contains its bytes")
    func secret() throws {
      let key = try EncryptionKey.known("2026")
      var dumped = ""
      dump(key, to: &dumped)
      for text in ["\(key)", key.debugDescription, dumped, "\(try Keyring(key))"] {
        #expect(!text.contains("7, 7") && !text.contains("BwcH"))
      }
      #expect("\(key)" == "EncryptionKey(2026)")
    }

    @Test("A key can be stored in a file, readable by its owner only")
    func file() async throws {
      let directory = try TemporaryDirectory()
      let file = directory.url.appending(path: "key")
      let made = try EncryptionKey.random(identifier: "a")
      try made.write(to: file)
      #expect(try FileStatus(atPath: file.path)?.mode == 0o600)
      await expectError(.locked) { try EncryptionKey.random(identifier: "a").write(to: file) }

      let base = MemoryStorageEngine()
      try await base.encrypted(with: Keyring(made)).write(value, key: key)
      let read = try EncryptionKey(identifier: "a", contentsOf: file)
      #expect(try await base.encrypted(with: Keyring(read)).read(key: key) == value)

      for mode in [0o640, 0o604, 0o644, 0o620] {
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file.path)
        await expectError(.permissionDenied) { _ = try EncryptionKey(identifier: "a", contentsOf: file) }
      }
    }

    @Test("A key file that another user owns is refused", .enabled(if: geteuid() == 0))
    func foreignFile() async throws {
      let directory = try TemporaryDirectory()
      let file = directory.url.appending(path: "key")
      try EncryptionKey.random(identifier: "a").write(to: file)
      _ = try EncryptionKey(identifier: "a", contentsOf: file)
      try #require(chown(file.path, 65_534, 65_534) == 0)
      await expectError(.permissionDenied) { _ = try EncryptionKey(identifier: "a", contentsOf: file) }
    }

    #if os(Linux)
      @Test("A key file whose name cannot be synced is removed", .ownThreads)
      func unsyncedName() async throws {
        await #expect(processExitsWith: .success) {
          let parent = FileManager.Directory.temporary(appendingPath: "stockroom-\(UUID().uuidString)")
          try FileManager.default.createDirectory(at: parent.url, withIntermediateDirectories: false)
          defer { rmdir(parent.path) }
          // Files can be created in it, and it cannot be opened. Root may open every directory.
          chmod(parent.path, 0o733)
          chown(parent.path, 0, 0)
          if geteuid() == 0 { seteuid(65534) } else { chmod(parent.path, 0o333) }
          let file = parent.url.appending(path: "key")
          let key = try EncryptionKey.random(identifier: "a")
          var code: StorageError.Code?
          do { try key.write(to: file) } catch let error as StorageError { code = error.code }
          precondition(code == .permissionDenied)
          precondition(access(file.path, F_OK) != 0)
          seteuid(getuid())
        }
      }
    #endif

    @Test(
      "A file that does not contain a key is refused",
      arguments: [
        "", "\n", "short", String(repeating: "A", count: 44), String(repeating: "x", count: 10_000),
      ])
    func noKey(_ text: String) async throws {
      let directory = try TemporaryDirectory()
      let file = directory.url.appending(path: "key")
      try Data(text.utf8).write(to: file)
      try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
      await expectError(.unsupported) { _ = try EncryptionKey(identifier: "a", contentsOf: file) }
      await expectError(.io) {
        _ = try EncryptionKey(identifier: "a", contentsOf: file.appendingPathExtension("none"))
      }
      let link = directory.url.appending(path: "link")
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: file)
      #expect(throws: StorageError.self) { _ = try EncryptionKey(identifier: "a", contentsOf: link) }
    }

    #if os(macOS) || os(Linux)
      @Test("A key can be stored in an environment variable", .ownThreads)
      func environment() async {
        // In a separate process, because the environment belongs to the whole process.
        await #expect(processExitsWith: .success) {
          let name = "STOCKROOM_TEST_KEY"
          await expectError(.unsupported) {
            _ = try EncryptionKey(identifier: "a", environmentVariable: name)
          }
          setenv(name, Data(repeating: 7, count: 32).base64EncodedString(), 1)
          let base = MemoryStorageEngine()
          try await base.encrypted(with: Keyring(.known("a"))).write(value, key: key)
          let read = try EncryptionKey(identifier: "a", environmentVariable: name)
          #expect(try await base.encrypted(with: Keyring(read)).read(key: key) == value)
          setenv(name, "no Base64", 1)
          await expectError(.unsupported) {
            _ = try EncryptionKey(identifier: "a", environmentVariable: name)
          }
        }
      }
    #endif
  }
#endif
