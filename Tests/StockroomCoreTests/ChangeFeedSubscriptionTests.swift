import Foundation
import StockroomCore
import Testing

/// The elements that subscribers receive for commits of another feed, which stands for another process.
@Suite final class ChangeFeedSubscriptionTests {
  private let directory: URL
  private let log: String
  private let subscribed: ChangeFeed
  private let writing: ChangeFeed
  private let place = CountedPlace()

  init() throws {
    directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    log = directory.appending(path: "changes").path
    subscribed = ChangeFeed(logAtPath: log, .owner)
    writing = ChangeFeed(logAtPath: log, .owner)
  }

  deinit {
    subscribed.finish()
    writing.finish()
    try? FileManager.default.removeItem(at: directory)
  }

  private func keys(_ key: String) -> StorageChange { .keys([CacheKey(verbatim: key)]) }

  @Test(
    "A commit before a subscription that is acknowledged after it is reported",
    .timeLimit(.minutes(10)), arguments: [true, false])
  func acknowledgedLater(isFirst: Bool) async throws {
    let earlier = isFirst ? nil : try place.subscribe(to: subscribed)
    writing.hub.beginWrite()
    place.commit("a", to: writing)
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    writing.hub.endWrite()
    place.commit("b", to: writing)
    #expect(await changes.next() == .everything)
    withExtendedLifetime(earlier) {}
  }

  @Test(
    "A commit during a subscription that is acknowledged after it is reported",
    .timeLimit(.minutes(1)))
  func committedMeanwhile() async throws {
    let (place, writing) = (place, writing)
    var changes = try subscribed.subscribe(without: nil, of: ObjectIdentifier(place), to: { place }) {
      // Just before the subscription waits for the lock of the place.
      writing.hub.beginWrite()
      place.commit("a", to: writing)
    }.makeAsyncIterator()
    writing.hub.endWrite()
    place.commit("b", to: writing)
    #expect(await changes.next() == .everything)
  }

  @Test(
    "Neither an acknowledgement before the subscription nor a write without a commit is reported",
    .timeLimit(.minutes(10)))
  func acknowledgedBefore() async throws {
    writing.hub.beginWrite()
    place.commit("a", to: writing)
    writing.hub.endWrite()
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    writing.hub.beginWrite()
    writing.hub.endWrite()
    place.commit("b", to: writing)
    #expect(await changes.next() == keys("b"))
  }

  @Test(
    "A commit of another program is sent as everything if the process that announced its number has died",
    .timeLimit(.minutes(10)))
  func announcedByAnother() async throws {
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    _ = place.announce("a", to: writing)
    place.commit()
    place.commit("b", to: writing)
    var change = await changes.next()
    while let keys = change, keys != .everything { change = await changes.next() }
    #expect(change == .everything)
  }

  @Test("A log that is truncated during a subscription blocks no caller", .timeLimit(.minutes(10)))
  func truncated() async throws {
    var first = try place.subscribe(to: subscribed).makeAsyncIterator()
    let file = try FileHandle(forWritingTo: URL(filePath: log))
    try file.truncate(atOffset: 0)
    try file.close()
    let other = ChangeFeed(logAtPath: log, .owner)
    defer { other.finish() }
    var second = try place.subscribe(to: other).makeAsyncIterator()
    place.commit("a", to: writing)
    #expect(await second.next() == keys("a"))
    #expect(await first.next() != nil)
  }
}
