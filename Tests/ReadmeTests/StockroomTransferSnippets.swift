// The Swift code of StockroomTransfer.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
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
