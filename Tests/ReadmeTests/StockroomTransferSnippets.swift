// The Swift code of StockroomTransfer.md and MovingData.md, which ReadmeTests compares with the pages.

import Foundation
import StockroomCore
import StockroomLMDB
import StockroomLayers
import StockroomSQLite
import StockroomTransfer

func moveToSQLite(from old: some StorageEngine) async throws {
  try await old.copy(to: .sqlite(directory: .documents(appendingPath: "Moved")))
}

func archivePages(_ pages: SQLiteStorageEngine, in folder: URL) async throws {
  let summary = try await pages.dump(to: folder.appending(path: "pages.archive"))
  print("\(summary.entryCount) entries, \(summary.archiveSize) bytes")
}

func restorePages(from archive: URL) async throws -> SQLiteStorageEngine {
  let pages = try SQLiteStorageEngine(directory: .documents(appendingPath: "Pages"))
  try await pages.restore(from: archive)
  return pages
}

// MovingData.md

#if canImport(CryptoKit) || Encryption
  func encrypt(_ old: some StorageEngine, with key: EncryptionKey) async throws {
    let new = try LMDBStorageEngine(directory: .documents(appendingPath: "Encrypted"))
    let summary = try await old.copy(to: new.encrypted(with: Keyring(key))) { progress in
      print("\(progress.phase): \(progress.entries) of \(progress.totalEntries)")
    }
    print("\(summary.entries) entries, \(summary.bytes) bytes")
  }
#endif

/// What writes in the program of the reader.
protocol Writers {
  func pause() async
  func resume(with engine: some StorageEngine) async
}

func replace(_ old: some StorageEngine, by new: some StorageEngine, pausing writers: some Writers)
  async throws
{
  let copy = try await EngineCopy(from: old, to: new)
  await writers.pause()
  try await copy.finish()
  await writers.resume(with: new)
}

func merge(_ laptop: some StorageEngine, into shared: some StorageEngine) async throws {
  try await laptop.copy(to: shared, options: CopyOptions(target: .merge))
}
