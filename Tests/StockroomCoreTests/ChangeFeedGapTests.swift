import Foundation
import StockroomCore
import Testing

/// The elements that subscribers of another feed receive for a commit that could not be logged.
@Suite struct ChangeFeedGapTests {
  @Test(
    "A commit that cannot be logged is sent as everything, even if a failed commit has logged its number",
    .timeLimit(.minutes(60)))
  func recordOfFailedCommit() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let path = directory.appending(path: "changes").path
    let (subscribed, writing) = (
      ChangeFeed(logAtPath: path, like: directory.path), ChangeFeed(logAtPath: path, like: directory.path)
    )
    defer {
      subscribed.finish()
      writing.finish()
    }
    let place = CountedPlace()
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()

    // No commit follows, so the next one gets the same number.
    let failed: [StorageOperation] = [.remove(key: CacheKey(verbatim: "failed"))]
    writing.publish(writing.announce([.operations(failed)], [failed]) { 1 })
    let made: [StorageOperation] = [.remove(key: CacheKey(verbatim: "made"))]
    let announcement = writing.announce([.operations(made)], [made]) {
      throw StorageError(.diskFull, "In the test.")
    }
    place.commit()
    writing.publish(announcement)
    #expect(await changes.next() == .everything)

    // After the element for everything has been received, later commits are sent with their keys again.
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
