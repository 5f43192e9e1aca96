// The Swift code of StockroomLayers.md, EncryptingValues.md and MeasuringCalls.md, which ReadmeTests compares with the pages.

import Foundation
import StockroomCore
import StockroomLayers
import StockroomPostgreSQL
import StockroomSQLite
import StockroomStore
import Synchronization

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

func openMeasured() throws -> some StorageEngine {
  try SQLiteStorageEngine(directory: .documents(appendingPath: "Songs"))
    .instrumented(as: "songs", by: SlowCallLog(over: .milliseconds(100)) { print($0) })
}

final class ReadCounter: StorageInstrument {
  private let reads = Mutex(0)
  func record(_ call: StorageCall) { reads.withLock { $0 += call.entriesReturned } }
}

#if Instrumentation
  func openTraced() throws -> some StorageEngine {
    try SQLiteStorageEngine(directory: .documents(appendingPath: "Songs"))
      .instrumented(as: "songs", by: MetricsInstrument(), TracingInstrument(system: "sqlite"))
  }
#endif

#if canImport(CryptoKit) || Encryption
  func openLetters() throws -> some StorageEngine {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    return try SQLiteStorageEngine(directory: .documents(appendingPath: "Letters"))
      .encrypted(with: Keyring(key))
  }

  func rotate() async throws {
    let new = try EncryptionKey(identifier: "2027", contentsOf: URL(filePath: "/etc/letters/key-2027"))
    let old = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    let letters = try SQLiteStorageEngine(directory: .documents(appendingPath: "Letters"))
      .encrypted(with: Keyring(new, previous: [old]))
    try await letters.reencrypt { done, total in print("\(done) of \(total)") }
  }

  func openDiary() throws -> some StorageEngine {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/diary/key"))
    let names = try EncryptionKey(identifier: "names", contentsOf: URL(filePath: "/etc/diary/names"))
    return try SQLiteStorageEngine(directory: .documents(appendingPath: "Diary"))
      .encrypted(with: Keyring(key), hidingKeysWith: names)
  }

  func signIn() async throws {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Account"))
    let token = SecurelyStoredValue<String>(key: "token", storage: engine.encrypted(with: try Keyring(key)))
    try await token.set("s3cret")
  }
#endif
