// The Swift code of EncryptingValues.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
import StockroomLayers
import StockroomSQLite

#if canImport(CryptoKit) || Encryption
  func openLetters() throws -> some StorageEngine {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    return try SQLiteStorageEngine(directory: .documents(appendingPath: "Letters"))
      .encrypted(with: Keyring(key))
  }
#endif

#if canImport(CryptoKit) || Encryption
  func rotate() async throws {
    let new = try EncryptionKey(identifier: "2027", contentsOf: URL(filePath: "/etc/letters/key-2027"))
    let old = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/letters/key"))
    let letters = try SQLiteStorageEngine(directory: .documents(appendingPath: "Letters"))
      .encrypted(with: Keyring(new, previous: [old]))
    try await letters.reencrypt { done, total in print("\(done) of \(total)") }
  }
#endif

#if canImport(CryptoKit) || Encryption
  func openDiary() throws -> some StorageEngine {
    let key = try EncryptionKey(identifier: "2026", contentsOf: URL(filePath: "/etc/diary/key"))
    let names = try EncryptionKey(identifier: "names", contentsOf: URL(filePath: "/etc/diary/names"))
    return try SQLiteStorageEngine(directory: .documents(appendingPath: "Diary"))
      .encrypted(with: Keyring(key), hidingKeysWith: names)
  }
#endif
