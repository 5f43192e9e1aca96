import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite("SQLite: commits of other programs in the feed")
struct ForeignCommitTests {
  @Test("One that comes after a commit which changed nothing is reported (rule X1)", .timeLimit(.minutes(10)))
  func afterNoChange() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("1"), key: key(1))
    var changes = try await engine.changes().makeAsyncIterator()
    let other = try RawConnection(place.database)
    for _ in 0..<3 {
      try await engine.remove(key: key(2))
      #expect(await changes.next() == .keys([key(2)]))
      try other.run("UPDATE entries SET value = randomblob(8)")
      #expect(await changes.next() == .everything)
    }
    try await engine.close()
  }
}
