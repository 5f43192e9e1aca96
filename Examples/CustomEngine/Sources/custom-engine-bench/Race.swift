import BenchmarkKit
import CustomEngine
import Foundation
import StockroomSQLite

/// The engine beside one of Stockroom's.
@main struct Race {
  static func main() async throws {
    print(try await report(entries: 1_000).text)
  }

  static func report(entries: Int) async throws -> BenchmarkReport {
    try await BenchmarkRunner(configuration: BenchmarkConfiguration(entries: entries)).run([
      BenchmarkSubject("JSON") { try JSONStorageEngine(directory: $0) },
      BenchmarkSubject("SQLite") { try SQLiteStorageEngine(directory: .init(url: $0), durability: .process) },
    ])
  }
}
