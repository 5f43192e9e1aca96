import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// The change feed of every engine (rules X1 to X5). The conformance kit tests the same rules under load and
/// across processes.
@Suite struct ChangeFeedTests {
  private static let engines = EngineCatalog.onThisMachine.map(\.name)
  private static let shared = ["files", "sqlite", "lmdb"]

  private static func open(_ name: String, in directory: borrowing TemporaryDirectory) async throws
    -> any StorageEngine
  {
    try await EngineCatalog.select([name])[0].open(directory.url, .process)
  }

  private static func key(_ name: String) -> CacheKey { CacheKey(verbatim: name) }

  @Test("Every kind of write is reported with its keys", arguments: engines)
  func ownChanges(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    var changes = try await engine.changes().makeAsyncIterator()
    let (a, b) = (Self.key("a"), Self.key("b"))
    try await engine.write(Data(), key: a)
    #expect(await changes.next() == .keys([a]))
    try await engine.write([(a, Data()), (b, Data())])
    #expect(await changes.next() == .keys([a, b]))
    try await engine.remove(key: b)
    #expect(await changes.next() == .keys([b]))
    try await engine.apply([.remove(key: a), .write(Data(), key: b)])
    #expect(await changes.next() == .keys([a, b]))
    try await engine.withTransaction { try $0.write(Data(), key: a) }
    #expect(await changes.next() == .keys([a]))
    try await engine.writeEntries([StorageEntry(key: b, data: Data(), createdAt: .now, updatedAt: .now)])
    #expect(await changes.next() == .keys([b]))
    try await engine.remove(keys: [a, b])
    #expect(await changes.next() == .keys([a, b]))
    try await engine.removeAllData()
    #expect(await changes.next() == .everything)
    try await engine.close()
    #expect(await changes.next() == nil)
  }

  @Test(
    "A slow subscriber receives several changes merged into one, and above the limit an element for everything",
    arguments: engines)
  func slowSubscriber(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    var changes = try await engine.changes().makeAsyncIterator()
    try await engine.write(Data(), key: Self.key("a"))
    try await engine.write(Data(), key: Self.key("b"))
    #expect(await changes.next() == .keys([Self.key("a"), Self.key("b")]))
    try await engine.write((0...StorageChanges.defaultKeyLimit).map { (Self.key("\($0)"), Data()) })
    #expect(await changes.next() == .everything)
    try await engine.close()
  }

  @Test("A write that changes nothing is not reported", arguments: engines)
  func silence(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    var changes = try await engine.changes().makeAsyncIterator()
    _ = try await engine.read(key: Self.key("a"))
    try await engine.write([])
    try await engine.withTransaction { _ = try $0.keyCount() }
    await #expect(throws: (any Error).self) { try await engine.write(Data(), key: Self.key("")) }
    try await engine.write(Data(), key: Self.key("last"))
    #expect(await changes.next() == .keys([Self.key("last")]))
    try await engine.close()
  }

  @Test(
    "A stream ends when its engine is closed or released, and not when another engine on the place is",
    arguments: shared)
  func ends(name: String) async throws {
    let directory = try TemporaryDirectory()
    var first: (any StorageEngine)? = try await Self.open(name, in: directory)
    let second = try await Self.open(name, in: directory)
    var firstChanges = try #require(await first?.changes().makeAsyncIterator())
    var secondChanges = try await second.changes().makeAsyncIterator()
    first = nil
    #expect(await firstChanges.next() == nil)
    try await second.write(Data(), key: Self.key("a"))
    #expect(await secondChanges.next() == .keys([Self.key("a")]))
    try await second.close()
    #expect(await secondChanges.next() == nil)
    await #expect(throws: StorageError.self) { try await second.changes() }
  }

  @Test("Engines on one place receive each other's changes with their keys", arguments: shared)
  func otherEngine(name: String) async throws {
    let directory = try TemporaryDirectory()
    let (writer, reader) = (
      try await Self.open(name, in: directory), try await Self.open(name, in: directory)
    )
    var changes = try await reader.changes().makeAsyncIterator()
    var named = 0
    for step in 0..<50 {
      let key = Self.key("key \(step)")
      try await writer.write(Data("\(step)".utf8), key: key)
      // Other tests can overflow the system's notification queue, after which `.everything` is sent.
      waiting: while let change = await changes.next() {
        switch change {
        case .everything: break waiting
        case .keys(let keys) where keys.contains(key):
          named += 1
          break waiting
        case .keys: continue
        }
      }
      #expect(try await reader.read(key: key) == Data("\(step)".utf8))
    }
    #expect(named > 0)
    try await writer.removeAllData()
    while let change = await changes.next(), change != .everything {}
    try await reader.close()
    try await writer.close()
  }

  @Test(
    "Two engines that write concurrently each receive all changes of the other",
    arguments: shared)
  func concurrentWriters(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engines = [try await Self.open(name, in: directory), try await Self.open(name, in: directory)]
    let streams = [try await engines[0].changes(), try await engines[1].changes()]
    let keys = (0..<2).map { writer in (0..<200).map { Self.key("\(writer) \($0)") } }
    try await withThrowingTaskGroup { group in
      for index in 0..<2 {
        group.addTask {
          for key in keys[index] { try await engines[index].write(Data(), key: key) }
        }
        group.addTask {
          var missing = Set(keys.joined())
          for await change in streams[index] {
            switch change {
            case .keys(let found): missing.subtract(found)
            case .everything: missing.subtract(try await engines[index].allKeys())
            }
            if missing.isEmpty { break }
          }
          #expect(missing.isEmpty)
        }
      }
      try await group.waitForAll()
    }
    for engine in engines { try await engine.close() }
  }

  @Test("A subscriber receives every change acknowledged after it subscribed", arguments: engines)
  func subscribingWhileWriting(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    for round in 0..<20 {
      let isSubscribed = MutexProtected(false)
      let keys = (0..<100).map { Self.key("\(round) \($0)") }
      async let covered: Set<CacheKey> = {
        var acknowledged: Set<CacheKey> = []
        for key in keys {
          try await engine.write(Data(), key: key)
          if isSubscribed.withLock({ $0 }) { acknowledged.insert(key) }
        }
        return acknowledged
      }()
      let changes = try await engine.changes()
      isSubscribed.withLock { $0 = true }
      var missing = try await covered
      let last = Self.key("\(round) last")
      try await engine.write(Data(), key: last)
      missing.insert(last)
      for await change in changes {
        if case .keys(let found) = change { missing.subtract(found) } else { missing = [] }
        if missing.isEmpty { break }
      }
      #expect(missing.isEmpty)
    }
    try await engine.close()
  }

  @Test("A place can be subscribed to repeatedly without limit", arguments: engines)
  func subscribingOften(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    for _ in 0..<300 { _ = try await engine.changes() }
    var changes = try await engine.changes().makeAsyncIterator()
    try await engine.write(Data(), key: Self.key("a"))
    #expect(await changes.next() == .keys([Self.key("a")]))
    try await engine.close()
  }

  @Test("The place holds no files of the feed once the last subscription has ended", arguments: shared)
  func logIsRemoved(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    try await engine.write(Data(), key: Self.key("a"))
    let before = try directory.files()
    var changes: StorageChanges? = try await engine.changes()
    #expect(try directory.files() != before)
    withExtendedLifetime(changes) {}
    changes = nil
    // The engine's thread may still hold the last reference.
    while try directory.files() != before { await Task.yield() }
    try await engine.close()
  }

  @Test(
    "A removed place is not recreated by its subscribers",
    arguments: shared)
  func removedPlace(name: String) async throws {
    for _ in 0..<20 {
      let directory = try TemporaryDirectory()
      let place = directory.url.appending(path: "place", directoryHint: .isDirectory)
      let engine = try await EngineCatalog.select([name])[0].open(place, .process)
      try await engine.write(Data(), key: Self.key("a"))
      let changes = try await engine.changes()
      try FileManager.default.removeItem(at: place)
      withExtendedLifetime(changes) {}
      try await engine.close()
      #expect(!FileManager.default.fileExists(atPath: place.path(percentEncoded: false)))
    }
  }

  @Test("A subscriber can exclude its own changes", arguments: engines)
  func origin(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    let origin = ChangeOrigin()
    let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
    var iterator = changes.makeAsyncIterator()
    try await ChangeOrigin.$current.withValue(origin) { try await engine.write(Data(), key: Self.key("own")) }
    try await engine.write(Data(), key: Self.key("other"))
    #expect(await iterator.next() == .keys([Self.key("other")]))
    try await engine.close()
  }

  @Test("Files that another program creates, changes or removes are reported", .enabled(if: isLinux))
  func foreignFiles() async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open("files", in: directory)
    let key = Self.key("copied")
    try await engine.write(Data("1".utf8), key: Self.key("own"))
    var changes = try await engine.changes().makeAsyncIterator()
    let file = directory.url.appending(path: "copied.entry")
    try Data("1".utf8).write(to: file)
    #expect(await changes.next() == .keys([key]))
    #expect(try await engine.read(key: key) == Data("1".utf8))
    try FileManager.default.removeItem(at: file)
    while try await engine.keyExists(key) { #expect(await changes.next() == .keys([key])) }
    try await engine.close()
  }

  @Test("A file that is closed without having been written is not reported", .enabled(if: isLinux))
  func closedFiles() async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open("files", in: directory)
    try await engine.write(Data("1".utf8), key: Self.key("own"))
    var changes = try await engine.changes().makeAsyncIterator()
    // Simulates the copy of a descriptor that a child process closes at exec.
    try FileHandle(forWritingTo: directory.url.appending(path: "own.entry")).close()
    try Data("1".utf8).write(to: directory.url.appending(path: "copied.entry"))
    #expect(await changes.next() == .keys([Self.key("copied")]))
    try await engine.close()
  }

  @Test("A new subscriber does not receive earlier writes that the system reports late")
  func filesOfBefore() async throws {
    let directory = try TemporaryDirectory()
    let writer = try await Self.open("files", in: directory)
    let engine = try await Self.open("files", in: directory)
    // Both engines watch the same directory.
    let watching = try await writer.changes()
    for round in 0..<200 {
      for number in 0..<5 { try await writer.write(Data("1".utf8), key: Self.key("before \(number)")) }
      var changes = try await engine.changes().makeAsyncIterator()
      let key = Self.key("after \(round)")
      try await engine.write(Data("1".utf8), key: key)
      let change = await changes.next()
      #expect(change == .keys([key]))
    }
    withExtendedLifetime(watching) {}
    try await writer.close()
    try await engine.close()
  }

  private static let logs = [
    "files": ".stockroom/changes", "sqlite": "data.sqlite3-changes", "lmdb": "changes.log",
  ]

  @Test(
    "Whatever the log of changes contains, writes succeed and subscribers receive the changed keys",
    .timeLimit(.minutes(60)), arguments: shared)
  func corruptedLog(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    let key = Self.key("a")
    try await engine.write(Data(), key: key)
    let log = directory.url.appending(path: try #require(Self.logs[name]))
    let signature = Data("Stockroom log 1\n".utf8)
    for content in [
      // Contents that a power loss can leave.
      Data(), signature.prefix(9), Data(count: 64),
      // An impossible length.
      signature + Data(repeating: 0xFF, count: 8) + Data(count: 40),
    ] {
      try content.write(to: log)
      try await engine.write(Data("1".utf8), key: key)
      var changes = try await engine.changes().makeAsyncIterator()
      try await engine.write(Data("2".utf8), key: key)
      #expect(await changes.next() == .keys([key]))
    }
    try await engine.close()
  }

  private static var isLinux: Bool {
    #if os(Linux)
      true
    #else
      false
    #endif
  }
}

extension TemporaryDirectory {
  /// The names of all files.
  fileprivate borrowing func files() throws -> Set<String> {
    Set(try FileManager.default.subpathsOfDirectory(atPath: url.path(percentEncoded: false)))
  }
}
