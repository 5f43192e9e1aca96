// The Swift code of MovingData.md, which ReadmeTests compares with the page.

import StockroomCore
import StockroomLMDB
import StockroomLayers
import StockroomTransfer

#if canImport(CryptoKit) || Encryption
  func encrypt(_ old: some StorageEngine, with key: EncryptionKey) async throws {
    let new = try LMDBStorageEngine(directory: .documents(appendingPath: "Encrypted"))
    let summary = try await old.copy(to: new.encrypted(with: Keyring(key))) { progress in
      print("\(progress.phase): \(progress.entries) of \(progress.totalEntries)")
    }
    print("\(summary.entries) entries, \(summary.bytes) bytes")
  }
#endif

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
