import Foundation
import StockroomCore
import Testing

/// What subscribers receive of the commits of another feed, which are as those of another process.
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
    "What was committed before a subscription began, and is acknowledged after, is reported",
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
    "What is committed while a subscription begins, and is acknowledged after it, is reported",
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
    "What was acknowledged before a subscription began is not reported, and nor is a write that commits nothing",
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
    "A commit is everything if the process that had announced it has died, and another program made it",
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

  @Test("A log that is cut off while somebody subscribes keeps nobody waiting", .timeLimit(.minutes(10)))
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

  #if os(Linux)
    @Test(
      "A commit does not wait while the subscribers of its process wait for the lock of a log that has replaced theirs",
      .timeLimit(.minutes(5)))
    func lockedLog() async throws {
      var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
      let locked = try replaceLog()
      while try openLogs() < 2 { await Task.yield() }
      place.commit("a", to: subscribed)
      // Here, by the one that still waits for the lock, and by the commit.
      #expect(try openLogs() == 3)
      FileLock.release(locked.number)
      var change = await changes.next()
      while let found = change, found != .everything { change = await changes.next() }
      #expect(change == .everything)
    }

    @Test(
      "Streams that end do not wait for the lock of a log that has replaced theirs", .timeLimit(.minutes(1)))
    func endedWithLockedLog() async throws {
      // Each of them would wait for a minute.
      for _ in 0..<2 {
        let feed = ChangeFeed(logAtPath: log, .owner)
        let changes = try place.subscribe(to: feed)
        let locked = try replaceLog()
        while try openLogs() < 2 { await Task.yield() }
        feed.finish()
        FileLock.release(locked.number)
        withExtendedLifetime((changes, locked)) {}
      }
    }

    /// Puts a copy of the log in its place, of which the file that is returned has the lock.
    private func replaceLog() throws -> FileDescriptor {
      let other = log + "-other"
      try FileManager.default.copyItem(atPath: log, toPath: other)
      let copy = try #require(try FileDescriptor.openFile(atPath: other))
      try #require(try FileLock.tryAcquire(copy.number, path: other))
      try #require(rename(other, log) == 0)
      return copy
    }

    /// How often this process has the file open that is the log now.
    private func openLogs() throws -> Int {
      let end = "/\(directory.lastPathComponent)/changes"
      let files = FileManager.default
      return try files.contentsOfDirectory(atPath: "/proc/self/fd").count { number in
        // One that is closed in the meantime is no link any more.
        (try? files.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)"))?.hasSuffix(end) ?? false
      }
    }
  #endif
}
