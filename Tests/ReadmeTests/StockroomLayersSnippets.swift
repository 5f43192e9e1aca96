// The Swift code of StockroomLayers.md, which ReadmeTests compares with the page.

import StockroomCore
import StockroomLayers
import StockroomSQLite

func openPages() throws -> some StorageEngine {
  try SQLiteStorageEngine(directory: .documents(appendingPath: "Pages")).compressed()
}
