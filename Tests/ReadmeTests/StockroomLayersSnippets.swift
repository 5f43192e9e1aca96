// The Swift code of StockroomLayers.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
import StockroomLayers
import StockroomPostgreSQL
import StockroomSQLite
import StockroomStore

func openPages() throws -> some StorageEngine {
  try SQLiteStorageEngine(directory: .documents(appendingPath: "Pages")).compressed()
}

func openLibrary() async throws -> Store<Song> {
  let library = try SQLiteStorageEngine(directory: .documents(appendingPath: "Library"))
  let pages = try library.namespaced("pages").compressed()
  try await pages.write(Data("A long text".utf8), key: CacheKey(verbatim: "first"))
  return try await Store<Song>(storage: library.namespaced("songs"))
}

func openSessions() async throws -> some StorageEngine {
  let sessions = try SQLiteStorageEngine(directory: .documents(appendingPath: "Sessions"))
    .expiring(after: .seconds(3_600))
  try await sessions.write(Data("Ann".utf8), key: CacheKey(verbatim: "a1"), expiresAfter: .seconds(60))
  return sessions
}

func openLedger() throws -> some StorageEngine {
  try SQLiteStorageEngine(directory: .documents(appendingPath: "Ledger")).checksummedWithInventory()
}

func openShared() async throws -> some StorageEngine {
  try await PostgreSQLStorageEngine("postgresql:///pages").cached(limit: CacheLimit(bytes: 64 << 20))
}

#if canImport(CryptoKit) || Encryption
  func signIn() async throws {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Account"))
    let token = SecurelyStoredValue<String>(key: "token", storage: engine.encrypted(with: try Keyring(key)))
    try await token.set("s3cret")
  }
#endif
