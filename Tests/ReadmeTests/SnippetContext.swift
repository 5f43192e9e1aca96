// What the code on the pages leaves to the reader.

import Foundation
import StockroomCore
import StockroomSQLite

func MyEngine(directory: URL) throws -> SQLiteStorageEngine {
  try SQLiteStorageEngine(directory: FileManager.Directory(url: directory))
}

struct Errand: Codable, Sendable, Identifiable {
  var id: String
  var isDone = false
}

enum TransferError: Error {
  case invalid, notEnough
  case noBalance(CacheKey)
}

/// What writes in a program.
protocol Writers {
  func pause() async
  func resume(with engine: some StorageEngine) async
}
