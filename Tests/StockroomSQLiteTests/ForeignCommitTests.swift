import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite("SQLite: foreign commits in the change feed")
struct ForeignCommitTests {
  @Test("A foreign commit after a commit without changes is reported (rule X1)", .timeLimit(.minutes(60)))
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

  @Test(
    "A foreign commit after a commit that left an entry unchanged is reported (rule X1)",
    .timeLimit(.minutes(60)))
  func afterSameEntry() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("1"), key: key(1))
    let entries = try await engine.readAllEntries()
    var changes = try await engine.changes().makeAsyncIterator()
    let other = try RawConnection(place.database)
    for _ in 0..<3 {
      for _ in 0..<2 {
        try await engine.writeEntries(entries)
        #expect(await changes.next() == .keys([key(1)]))
      }
      try other.run("UPDATE entries SET value = randomblob(8)")
      #expect(await changes.next() == .everything)
    }
    try await engine.close()
  }

  @Test(
    "A foreign commit after a recovery is reported, although it has the number of the last one before (rule X1)",
    .timeLimit(.minutes(60)))
  func afterRecovery() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    for number in 0..<3 { try await engine.write(data("1"), key: key(number)) }
    var changes = try await engine.changes().makeAsyncIterator()
    let other = try RawConnection(place.database)
    try other.run("PRAGMA synchronous = OFF; SELECT * FROM metadata")
    // The index header, half of which a crashed process has written:
    // https://sqlite.org/walformat.html#the_wal_index_header
    let index = try FileHandle(forUpdating: URL(filePath: place.sharedMemory))
    let header = try #require(try index.read(upToCount: 48))
    let counter = header[8..<12].withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
    try index.seek(toOffset: 40)
    try index.write(contentsOf: Data(repeating: 0xA5, count: 8))
    try #require(counter > 0)
    // The first commit recovers the index, whose counter then restarts at 0.
    for _ in 0..<counter { try other.run("UPDATE entries SET value = randomblob(8)") }
    #expect(await changes.next() == .everything)
    try await engine.close()
    try index.close()
  }

  @Test("A subscription succeeds although another process briefly locks out new connections")
  func lockedForAMoment() async throws {
    try #require(FaultyFiles.areInstalled)
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    let refusals = Counter()
    // The writing connection already has its lock.
    let fault = FaultyFiles.begin(.lock, in: try place.directory.resolvedPath) { _ in
      refusals.increment()
      return refusals.count == 1
    }
    var changes = try await engine.changes().makeAsyncIterator()
    FaultyFiles.end(fault)
    #expect(refusals.count > 1)
    try await engine.write(data("1"), key: key(1))
    #expect(await changes.next() == .keys([key(1)]))
    try await engine.close()
  }

  @Test(
    "A log of changes that another program has truncated is replaced (rules X1, X5)", .timeLimit(.minutes(60))
  )
  func truncatedLog() async throws {
    let place = try TestPlace()
    let (reader, writer) = (
      try SQLiteStorageEngine(directory: place.directory), try SQLiteStorageEngine(directory: place.directory)
    )
    var changes = try await reader.changes().makeAsyncIterator()
    try await writer.write(data("1"), key: key(1))
    #expect(await changes.next() != nil)
    try #require(truncate(place.database + "-changes", 0) == 0)
    for round in 0..<8 {
      try await writer.write(data("\(round)"), key: key(1))
      #expect(await changes.next() != nil)
    }
    // Another engine can subscribe again.
    let second = try SQLiteStorageEngine(directory: place.directory)
    _ = try await second.changes()
    for engine in [reader, writer, second] { try await engine.close() }
  }
}
