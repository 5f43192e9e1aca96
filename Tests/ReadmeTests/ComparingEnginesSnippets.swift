// The Swift code of ComparingEngines.md, which ReadmeTests compares with the page.

import BenchmarkKit
import Foundation
import StockroomSQLite

func race() async throws {
  let report = try await BenchmarkRunner(configuration: BenchmarkConfiguration()).run([
    BenchmarkSubject("mine") { try MyEngine(directory: $0) },
    BenchmarkSubject("SQLite") { try SQLiteStorageEngine(directory: .init(url: $0)) },
  ])
  print(report.text)
}
