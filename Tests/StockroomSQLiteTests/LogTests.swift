import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

/// The length of the write-ahead log.
@Suite struct LogTests {
  #if os(macOS) || os(Linux)
    /// Reads on a dedicated thread until `isDone`. Each transaction begins before the previous one ends.
    private func readOverlapping(_ database: String, until isDone: Counter) throws {
      let readers = try (0..<3).map { _ in try RawConnection(database) }
      var number = 0
      while isDone.count == 0 {
        try readers[number % 3].run("BEGIN; SELECT * FROM entries")
        if number >= 2 { try readers[(number + 1) % 3].run("COMMIT") }
        number += 1
        usleep(2_000)
      }
    }

    @Test("The log stays short while read transactions of another process overlap without a gap", .ownThreads)
    func overlappingReaders() async throws {
      let place = try TestPlace()
      let engine = try SQLiteStorageEngine(directory: place.directory)
      try await engine.write(data("x"), key: key(0))
      let isDone = Counter()
      let reading = Task.detached {
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
          Thread { continuation.resume(with: Result { try readOverlapping(place.database, until: isDone) }) }
            .start()
        }
      }
      await #expect(processExitsWith: .success) {
        [url = place.url as URL, log = place.log as String] in
        let engine = try SQLiteStorageEngine(directory: .init(url: url), durability: .process)
        let value = Data(count: 1 << 20)
        var longest = 0
        for number in 0..<100 {
          try await engine.write(value, key: key(number % 4))
          longest = max(longest, try #require(try size(of: log)))
        }
        // A blocking checkpoint starts at 16 MiB, and again at twice the length if it did not wait long
        // enough.
        #expect(longest < 70 << 20)
        try await engine.close()
      }
      isDone.increment()
      try await reading.value
      try await engine.close()
    }
  #endif
}
