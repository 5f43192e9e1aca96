import BenchmarkKit
import CustomEngine
import Dispatch
import Foundation
import StockroomSQLite

/// Compares the speed of the engine with that of one of Stockroom's.
@main struct Race {
  static func main() async throws {
    let (registrations, registration) = AsyncStream<Never>.makeStream()
    let race = Task {
      for await _ in registrations {}
      try Task.checkCancellation()
      return try await report(entries: 1_000)
    }
    // A run that is cancelled removes its directories.
    let interrupt = DispatchSource.makeSignalSource(signal: SIGINT, queue: .global())
    interrupt.setEventHandler { @Sendable in race.cancel() }
    interrupt.setRegistrationHandler { @Sendable in
      #if canImport(Darwin)
        // Otherwise the signal would also end the process.
        signal(SIGINT, SIG_IGN)
      #endif
      registration.finish()
    }
    interrupt.activate()
    defer { interrupt.cancel() }
    do { print(try await race.value.text) } catch is CancellationError { exit(128 + SIGINT) }
  }

  static func report(entries: Int) async throws -> BenchmarkReport {
    try await BenchmarkRunner(configuration: BenchmarkConfiguration(entries: entries)).run([
      BenchmarkSubject("JSON") { try JSONStorageEngine(directory: $0) },
      BenchmarkSubject("SQLite") { try SQLiteStorageEngine(directory: .init(url: $0), durability: .process) },
    ])
  }
}
