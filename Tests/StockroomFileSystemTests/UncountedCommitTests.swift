import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("A commit whose state cannot be written")
struct UncountedCommitTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("Subscribers receive it, and reads continue", .timeLimit(.minutes(60)))
  func reported() async throws {
    let engine = try place.open()
    var changes = try await engine.changes().makeAsyncIterator()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    let readOnly = try #require(
      try FileDescriptor.openFile(atPath: place.file(".stockroom/state").path, O_RDONLY))
    try connection.withLock {
      // From here on the state file can be read, but not written.
      try connection.withOddVersion {
        try #require(dup2(readOnly.number, connection.state.file.number) >= 0)
      }
    }
    #expect(await changes.next() == .everything)
    // A state that cannot be repaired does not prevent reads.
    let metadata = try connection.withLock { try connection.metadata(of: FileName("absent")) }
    #expect(metadata == nil)
    let count = try connection.withLock { try DiskEntryReader(connection: connection).count() }
    #expect(count == 0)
    connection.release()
    withExtendedLifetime(readOnly) {}
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }
}
