import Foundation
import StockroomCore
import Testing

/// What subscribers of another feed receive of a commit that could not be written down for them.
@Suite struct ChangeFeedGapTests {
  @Test(
    "A commit that cannot be written down is everything, also if one that failed has left a record with its number",
    .timeLimit(.minutes(5)))
  func recordOfFailedCommit() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let path = directory.appending(path: "changes").path
    let (subscribed, writing) = (ChangeFeed(logAtPath: path, .owner), ChangeFeed(logAtPath: path, .owner))
    defer {
      subscribed.finish()
      writing.finish()
    }
    let place = CountedPlace()
    var changes = try subscribed.subscribe(
      without: nil, of: ObjectIdentifier(place), to: { place }, afterCommits: {}
    ).makeAsyncIterator()

    // It fails, and leaves the number to the next one.
    let failed: [StorageOperation] = [.remove(key: CacheKey(verbatim: "failed"))]
    writing.publish(writing.announce([.operations(failed)], [failed]) { 1 })
    let made: [StorageOperation] = [.remove(key: CacheKey(verbatim: "made"))]
    let announcement = writing.announce([.operations(made)], [made]) {
      throw StorageError(.diskFull, "In the test.")
    }
    place.commit()
    writing.publish(announcement)
    #expect(await changes.next() == .everything)

    // Commits behind the gap have their keys again, once what has been sent for it has been received.
    var number: UInt64 = 1
    var change: StorageChange?
    repeat {
      number += 1
      let next = writing.announce([.operations(made)], [made]) { number }
      place.commit()
      writing.publish(next)
      change = await changes.next()
    } while change == .everything
    #expect(change == .keys([CacheKey(verbatim: "made")]))
  }
}
