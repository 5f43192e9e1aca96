import Foundation
import StockroomCore
import Testing

/// The elements that subscribers receive for commits of another feed, which simulates another process.
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
    subscribed = ChangeFeed(logAtPath: log, like: directory.path)
    writing = ChangeFeed(logAtPath: log, like: directory.path)
  }

  deinit {
    subscribed.finish()
    writing.finish()
    try? FileManager.default.removeItem(at: directory)
  }

  private func keys(_ key: String) -> StorageChange { .keys([CacheKey(verbatim: key)]) }

  @Test(
    "A commit before a subscription that is acknowledged after it is reported",
    .timeLimit(.minutes(60)), arguments: [true, false])
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
    .timeLimit(.minutes(60)))
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
    .timeLimit(.minutes(60)))
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
    .timeLimit(.minutes(60)))
  func announcedByAnother() async throws {
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    _ = place.announce("a", to: writing)
    place.commit()
    place.commit("b", to: writing)
    var change = await changes.next()
    while let keys = change, keys != .everything { change = await changes.next() }
    #expect(change == .everything)
  }

  @Test(
    "A commit whose writer could not check for subscribers is reported once it can",
    .timeLimit(.minutes(60)))
  func failedSubscriberCheck() async throws {
    writing.hub.beginWrite()
    place.commit("a", to: writing)
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    // While the directory is a file, the writer cannot open the log.
    let files = FileManager.default
    let elsewhere = URL(filePath: directory.path + "-elsewhere")
    try files.moveItem(at: directory, to: elsewhere)
    try Data().write(to: URL(filePath: directory.path))
    writing.hub.endWrite()
    try files.removeItem(at: URL(filePath: directory.path))
    try files.moveItem(at: elsewhere, to: directory)
    writing.hub.beginWrite()
    writing.hub.endWrite()
    place.commit("b", to: writing)
    #expect(await changes.next() == .everything)
  }

  @Test("A log that has been removed is created again for the next subscriber", .timeLimit(.minutes(60)))
  func removedLog() async throws {
    let earlier = try place.subscribe(to: subscribed)
    try FileManager.default.removeItem(atPath: log)
    writing.hub.beginWrite()
    place.commit("a", to: writing)
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    writing.hub.endWrite()
    #expect(await changes.next() == .everything)
    place.commit("b", to: writing)
    #expect(await changes.next() == keys("b"))
    withExtendedLifetime(earlier) {}
  }

  @Test(
    "A check that fails is repeated, although nothing else happens", .timeLimit(.minutes(60)))
  func failedCheck() async throws {
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    place.setChecksFail(true)
    place.commit("a", to: writing)
    #expect(await changes.next() == .everything)
    place.setChecksFail(false)
    // Covers the changes that were missed meanwhile.
    #expect(await changes.next() == .everything)
  }

  #if !canImport(Darwin)
    @Test(
      "While a file cannot be watched, commits are reported, and not everything again and again",
      .timeLimit(.minutes(60)))
    func unwatched() async throws {
      let file = directory.appending(path: "data")
      try Data().write(to: file)
      let place = CountedPlace(writtenFiles: [file.path])
      var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
      // A file that has been written is watched again a moment later.
      let handle = try FileHandle(forWritingTo: file)
      try FileManager.default.removeItem(at: file)
      try handle.write(contentsOf: Data([0]))
      #expect(await changes.next() == .everything)
      for name in ["a", "b"] {
        place.commit(name, to: writing)
        #expect(await changes.next() == keys(name))
      }
      try Data().write(to: file)
      #expect(await changes.next() == .everything)
      try handle.close()
    }
  #endif

  @Test(
    "A lock of the place that fails is reported once as everything, and once more when it works",
    .timeLimit(.minutes(60)), arguments: [true, false])
  func failedLock(isRepaired: Bool) async throws {
    let file = directory.appending(path: "data")
    try Data().write(to: file)
    let place = CountedPlace(writtenFiles: [file.path])
    var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
    place.setLockFails(true)
    let handle = try FileHandle(forWritingTo: file)
    try handle.write(contentsOf: Data([0]))
    try handle.close()
    #expect(await changes.next() == .everything)
    // When a check attempts the lock, the result of the previous one has been reported.
    let count = place.lockAttemptCount + 3
    while place.lockAttemptCount < count { await Task.yield() }
    if isRepaired {
      place.setLockFails(false)
      #expect(await changes.next() == .everything)
    }
    subscribed.finish()
    #expect(await changes.next() == nil)
  }

  @Test(
    "A hard link to another file in the place of the log is refused and not written", arguments: [0, 100])
  func plantedLink(size: Int) throws {
    let victim = directory.appending(path: "victim")
    try Data(count: size).write(to: victim)
    try FileManager.default.linkItem(at: victim, to: URL(filePath: log))
    #expect(throws: StorageError.self) { _ = try place.subscribe(to: subscribed) }
    #expect(try Data(contentsOf: victim) == Data(count: size))
  }

  @Test("A log that is truncated during a subscription blocks nobody", .timeLimit(.minutes(60)))
  func truncated() async throws {
    var first = try place.subscribe(to: subscribed).makeAsyncIterator()
    let file = try FileHandle(forWritingTo: URL(filePath: log))
    try file.truncate(atOffset: 0)
    try file.close()
    let other = ChangeFeed(logAtPath: log, like: directory.path)
    defer { other.finish() }
    var second = try place.subscribe(to: other).makeAsyncIterator()
    place.commit("a", to: writing)
    #expect(await second.next() == keys("a"))
    #expect(await first.next() != nil)
  }

  #if os(Linux)
    @Test(
      "A commit does not wait while the subscribers of its process wait for the lock of a log that has replaced theirs",
      .timeLimit(.minutes(60)))
    func lockedLog() async throws {
      var changes = try place.subscribe(to: subscribed).makeAsyncIterator()
      let locked = try replaceLog()
      while try openLogs() < 2 { await Task.yield() }
      place.commit("a", to: subscribed)
      // Opened by this test, by the check that waits for the lock, and by the commit.
      #expect(try openLogs() == 3)
      FileLock.release(locked.number)
      var change = await changes.next()
      while let found = change, found != .everything { change = await changes.next() }
      #expect(change == .everything)
    }

    @Test(
      "Streams that end do not wait for the lock of a log that has replaced theirs", .timeLimit(.minutes(60)))
    func endedWithLockedLog() async throws {
      // Each of them would wait for a minute.
      for _ in 0..<2 {
        let feed = ChangeFeed(logAtPath: log, like: directory.path)
        let changes = try place.subscribe(to: feed)
        let locked = try replaceLog()
        while try openLogs() < 2 { await Task.yield() }
        feed.finish()
        FileLock.release(locked.number)
        withExtendedLifetime((changes, locked)) {}
      }
    }

    /// Replaces the log by a copy, and returns a file that holds the lock of the copy.
    private func replaceLog() throws -> FileDescriptor {
      let other = log + "-other"
      try FileManager.default.copyItem(atPath: log, toPath: other)
      let copy = try #require(try FileDescriptor.openFile(atPath: other))
      try #require(try FileLock.tryAcquire(copy.number, path: other))
      try #require(rename(other, log) == 0)
      return copy
    }

    /// The number of descriptors of this process that refer to the current log.
    private func openLogs() throws -> Int {
      let end = "/\(directory.lastPathComponent)/changes"
      let files = FileManager.default
      return try files.contentsOfDirectory(atPath: "/proc/self/fd").count { number in
        // A descriptor may be closed in the meantime.
        (try? files.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)"))?.hasSuffix(end) ?? false
      }
    }
  #endif
}
