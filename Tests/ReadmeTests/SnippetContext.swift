// Declarations that the code on the pages uses without showing them.

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

/// The tasks of a program that write.
protocol Writers {
  func pause() async
  func resume(with engine: some StorageEngine) async
}
