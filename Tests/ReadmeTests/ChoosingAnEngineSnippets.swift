// The Swift code of ChoosingAnEngine.md, which ReadmeTests compares with the page.

import StockroomCore
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomStore
import StockroomTransfer

struct Letter: Codable, Sendable, Identifiable {
  var id: String
}

func letters() async throws -> [Store<Letter>] {
  [
    try await Store(storage: .lmdb(directory: .documents(appendingPath: "Letters"))),
    try await Store(storage: .levelDB(directory: .caches(appendingPath: "Letters"))),
    try await Store(storage: .memory()),
  ]
}

func letters(isTest: Bool) async throws -> Store<Letter> {
  let engine: any StorageEngine =
    isTest ? MemoryStorageEngine() : try LMDBStorageEngine(directory: .documents(appendingPath: "Letters"))
  return try await Store(storage: engine)
}

func drafts() async throws -> Store<Letter> {
  try await Store(storage: .lmdb(directory: .caches(appendingPath: "Drafts"), durability: .process))
}

func move(from old: any StorageEngine, to new: any StorageEngine) async throws {
  try await old.copy(to: new)
  try await old.close()
}
