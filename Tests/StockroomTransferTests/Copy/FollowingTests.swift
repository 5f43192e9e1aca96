import Foundation
import StockroomCore
import StockroomEngines
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Copies of what is in use")
struct FollowingTests {
  typealias Method = FailingStorageEngine.Call.Method

  /// Each engine is a source and a target.
  private static let pairs = [
    ("memory", "sqlite"), ("sqlite", "files"), ("files", "lmdb"), ("lmdb", "leveldb"), ("leveldb", "memory"),
  ]

  @Test(
    "What four tasks write, remove and write again while a place is copied is in the copy, and in its order",
    arguments: pairs)
  func tasks(source: String, target: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let old = try await EngineCatalog.open(source, in: directories.0.url)
    let new = try await EngineCatalog.open(target, in: directories.1.url)
    let keys = hostileKeys(200)
    try await fill(old, keys)
    async let writing: Void = withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<4 { group.addTask { try await Self.change(old, keys, task) } }
      try await group.waitForAll()
    }
    let copy = try await EngineCopy(from: old, to: new, options: CopyOptions(batchSize: 2_000))
    // Also while it is being followed.
    for key in keys.prefix(10) { try await old.write(Data("last".utf8), key: key) }
    try await writing
    let summary = try await copy.finish()
    let entries = try await old.readAllEntries()
    #expect(summary.entries == entries.count)
    #expect(try await new.readAllEntries() == entries)
    for engine in [old, new] { try await engine.close() }
  }

  /// The changes that one of the tasks makes.
  private static func change(_ engine: any StorageEngine, _ keys: [CacheKey], _ task: Int) async throws {
    for step in 0..<60 {
      let key = keys[(step * 31 + task * 7) % keys.count]
      switch step % 5 {
      case 0: try await engine.write(Data("\(task) \(step)".utf8), key: key)
      case 1: try await engine.remove(key: key)
      case 2: try await engine.apply([.remove(key: key), .write(Data("again \(step)".utf8), key: key)])
      case 3: try await engine.write(Data(), key: CacheKey(verbatim: "new \(task) \(step)"))
      default:
        try await engine.writeEntries([
          StorageEntry(key: key, data: Data("e".utf8), createdAt: .distantPast, updatedAt: .now)
        ])
      }
      if task == 0, step == 30 { try await engine.removeAllData() }
    }
  }

  @Test("Finishing a copy twice overwrites nothing that was written in between")
  func finishedTwice() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    let key = CacheKey(verbatim: "k")
    try await old.write(Data("old".utf8), key: key)
    let copy = try await EngineCopy(from: old, to: new)
    try await copy.finish()
    try await new.write([(key, Data("new".utf8)), (CacheKey(verbatim: "another"), Data())])
    #expect(try await copy.finish().entries == 1)
    #expect(try await new.read(key: key) == Data("new".utf8))
    #expect(try await new.keyCount() == 2)
  }

  @Test(
    "Finishing is cancelled only when everybody who waits for it is", .timeLimit(.minutes(60)),
    arguments: [0, 1])
  func cancellingOneOfTwo(cancelled: Int) async throws {
    let (old, new) = (FailingStorageEngine(MemoryStorageEngine()), MemoryStorageEngine())
    try await fill(old, hostileKeys(50))
    let copy = try await EngineCopy(from: old, to: new)
    old.hold { $0.method == .allKeys }
    let first = Task { try await copy.finish() }
    try await old.waitForHeldCalls()
    let second = Task { try await copy.finish() }
    for _ in 0..<1_000 { await Task.detached {}.value }
    let calls = [first, second]
    calls[cancelled].cancel()
    await #expect(throws: CancellationError.self) { try await calls[cancelled].value }
    old.release()
    #expect(try await calls[1 - cancelled].value.entries == 50)
    #expect(try await copy.finish().entries == 50)
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }

  @Test("Finishing that is cancelled can be repeated, even at once", .timeLimit(.minutes(60)))
  func cancellingAll() async throws {
    let (old, new) = (FailingStorageEngine(MemoryStorageEngine()), MemoryStorageEngine())
    try await fill(old, hostileKeys(50))
    let copy = try await EngineCopy(from: old, to: new)
    old.hold { $0.method == .allKeys }
    let first = Task { try await copy.finish() }
    try await old.waitForHeldCalls()
    first.cancel()
    let second = Task { try await copy.finish() }
    await #expect(throws: CancellationError.self) { try await first.value }
    old.release()
    #expect(try await second.value.entries == 50)
  }

  @Test("A change of the source is copied before the copy is finished")
  func following() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    let keys = hostileKeys(100)
    try await fill(old, keys)
    var changes = try await new.changes().makeAsyncIterator()
    // The origin of the caller must not exclude its own changes from the copy.
    let copy = try await ChangeOrigin.$current.withValue(ChangeOrigin()) {
      let copy = try await EngineCopy(from: old, to: new)
      try await old.write(Data("followed".utf8), key: keys[3])
      return copy
    }
    while try await new.read(key: keys[3]) != Data("followed".utf8) {
      try #require(await changes.next() != nil)
    }
    try await copy.finish()
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }

  /// Returns once a change of the source has caused a write to the target, whether that has failed or not.
  private func waitForWrite(
    to target: FailingStorageEngine, after change: () async throws -> Void
  ) async throws {
    let writesBefore = target.calls.count { $0.isWrite }
    try await change()
    while target.calls.count(where: { $0.isWrite }) == writesBefore { await Task.yield() }
  }

  @Test("A change that could not be written to the target is copied with the next one")
  func transientFailure() async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new = FailingStorageEngine(base)
    let keys = hostileKeys(10)
    try await fill(old, keys)
    var changes = try await base.changes().makeAsyncIterator()
    let copy = try await EngineCopy(from: old, to: new)
    new.failCall(1, with: StorageError(.io, "Once")) { $0.isWrite }
    try await waitForWrite(to: new) { try await old.write(Data("first".utf8), key: keys[3]) }
    try await old.write(Data("second".utf8), key: keys[4])
    while try await base.read(key: keys[4]) != Data("second".utf8) {
      try #require(await changes.next() != nil)
    }
    #expect(try await base.read(key: keys[3]) == Data("first".utf8))
    try await copy.finish()
    #expect(try await base.readAllEntries() == old.readAllEntries())
  }

  @Test("A change that could not be written, and after which none came, is in the copy once it is finished")
  func lastChangeFails() async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new = FailingStorageEngine(base)
    let keys = hostileKeys(10)
    try await fill(old, keys)
    let copy = try await EngineCopy(from: old, to: new)
    new.failEveryCall { $0.isWrite }
    try await waitForWrite(to: new) {
      try await old.write([(keys[3], Data("changed".utf8)), (CacheKey(verbatim: "new"), Data())])
    }
    new.clearFaults()
    #expect(try await copy.finish().entries == 11)
    #expect(try await base.readAllEntries() == old.readAllEntries())
  }

  @Test("A removal of everything that failed in the target is repeated with the next change")
  func removalOfEverythingFails() async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new = FailingStorageEngine(base)
    try await fill(old, hostileKeys(10))
    var changes = try await base.changes().makeAsyncIterator()
    let copy = try await EngineCopy(from: old, to: new)
    new.failCall(1, with: StorageError(.io, "Once")) { $0.isWrite }
    try await waitForWrite(to: new) { try await old.removeAllData() }
    let last = CacheKey(verbatim: "last")
    try await old.write(Data(), key: last)
    while try await !base.keyExists(last) { try #require(await changes.next() != nil) }
    // The other entry marks the copy as unfinished.
    #expect(try await base.keyCount() == 2)
    #expect(try await copy.finish().entries == 1)
    #expect(try await base.readAllEntries() == old.readAllEntries())
  }

  @Test(
    "Finishing that fails can be repeated, whatever has failed",
    arguments: [Method.allKeys, .writeEntries, .remove])
  func finishingFails(method: Method) async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new = FailingStorageEngine(base)
    let keys = hostileKeys(10)
    try await fill(old, keys)
    let copy = try await EngineCopy(from: old, to: new)
    await copy.cancel()
    try await old.write(Data("changed".utf8), key: keys[3])
    new.failCall(1, with: StorageError(.diskFull, "Once")) { $0.method == method }
    let error = await #expect(throws: StorageError.self) { try await copy.finish() }
    #expect(error?.code == .diskFull)
    // It is unfinished until then.
    await #expect(throws: StorageError.self) { try await base.copy(to: MemoryStorageEngine()) }
    #expect(try await copy.finish().entries == 10)
    #expect(try await base.readAllEntries() == old.readAllEntries())
  }

  @Test("A merge follows the source, and keeps what is only in the target")
  func merging() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    let keys = hostileKeys(30)
    try await fill(old, keys)
    let mine = CacheKey(verbatim: "mine")
    try await new.write(Data(), key: mine)
    let copy = try await EngineCopy(from: old, to: new, options: CopyOptions(target: .merge))
    try await old.remove(key: keys[5])
    try await old.write(Data("changed".utf8), key: keys[6])
    try await old.remove(key: mine)
    try await copy.finish()
    #expect(Set(try await new.allKeys()) == Set(keys).subtracting([keys[5]]).union([mine]))
    #expect(try await new.read(key: keys[6]) == Data("changed".utf8))
  }

  @Test("A merge removes no entry that the target had, also if the source has replaced and then removed it")
  func mergingRemovals() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    let keys = hostileKeys(30)
    try await new.write([(keys[3], Data("mine".utf8)), (keys[4], Data("mine".utf8))])
    // Later than in the target.
    try await fill(old, keys)
    let copy = try await EngineCopy(from: old, to: new, options: CopyOptions(target: .merge))
    let replaced = try await old.read(key: keys[3])
    #expect(try await new.read(key: keys[3]) == replaced)
    try await old.write(Data("changed".utf8), key: keys[4])
    try await old.remove(keys: [keys[3], keys[5]])
    try await copy.finish()
    #expect(Set(try await new.allKeys()) == Set(keys).subtracting([keys[5]]))
    #expect(try await new.read(key: keys[3]) == replaced)
    #expect(try await new.read(key: keys[4]) == Data("changed".utf8))
  }

  @Test(
    "A merge removes what the source has removed, also if the answer to its write was lost",
    arguments: [StorageError.Code.outcomeUnknown, .io])
  func mergingRemovalOfUnknown(code: StorageError.Code) async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new = FailingStorageEngine(base)
    let (mine, added) = (CacheKey(verbatim: "mine"), CacheKey(verbatim: "added"))
    try await base.write(Data(), key: mine)
    let copy = try await EngineCopy(from: old, to: new, options: CopyOptions(target: .merge))
    await copy.cancel()
    try await old.write(Data("new".utf8), key: added)
    new.failCall(1, with: StorageError(code, "Lost"), .afterwards) { $0.method == .writeEntries }
    await #expect(throws: StorageError.self) { try await copy.finish() }
    #expect(try await base.keyExists(added))
    try await old.remove(key: added)
    try await copy.finish()
    #expect(try await base.allKeys() == [mine])
  }

  @Test("A copy that is cancelled while it follows can be resumed")
  func cancelling() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(50))
    let copy = try await EngineCopy(from: old, to: new)
    await copy.cancel()
    try await old.write(Data(), key: CacheKey(verbatim: "later"))
    let summary = try await old.copy(to: new)
    #expect(summary.written == 1)
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }
}
