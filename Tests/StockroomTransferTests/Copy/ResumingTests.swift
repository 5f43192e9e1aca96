import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Copies that are ended and resumed")
struct ResumingTests {
  private static let count = 600

  @Test(
    "A copy whose process is killed is resumed where it was, and nothing else accepts the target",
    .ownThreads,
    arguments: ["files", "sqlite", "lmdb", "leveldb"])
  func killed(name: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let paths = (directories.0.url.path(), directories.1.url.path())
    let old = try await EngineCatalog.open("sqlite", in: directories.0.url)
    try await fill(old, hostileKeys(Self.count))
    await #expect(processExitsWith: .signal(SIGKILL)) {
      [name = name as String, source = paths.0 as String, target = paths.1 as String] in
      let old = try await EngineCatalog.open("sqlite", in: URL(filePath: source))
      let new = try await EngineCatalog.open(name, in: URL(filePath: target))
      try await old.copy(to: new, options: CopyOptions(batchSize: 10_000)) { state in
        if state.phase == .copying, state.entries >= Self.count / 2 { kill(getpid(), SIGKILL) }
      }
    }
    let new = try await EngineCatalog.open(name, in: directories.1.url)
    let there = try await new.keyCount() - 1
    #expect((Self.count / 2..<Self.count).contains(there))
    for options in [CopyOptions(target: .refuse), CopyOptions(target: .merge)] {
      let error = await #expect(throws: StorageError.self) { try await old.copy(to: new, options: options) }
      #expect(error?.code == .unsupported)
    }
    // Nor is it accepted as a source.
    await #expect(throws: StorageError.self) { try await new.copy(to: MemoryStorageEngine()) }
    let summary = try await old.copy(to: new)
    #expect(summary.written == Self.count - there)
    #expect(try await new.readAllEntries() == old.readAllEntries())
    for engine in [old, new] { try await engine.close() }
  }

  @Test("A copy that is cancelled is resumed, also if the source has changed since")
  func cancelled() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    let keys = hostileKeys(Self.count)
    try await fill(old, keys)
    let task = Task {
      try await old.copy(to: new, options: CopyOptions(batchSize: 1_000)) { state in
        if state.entries >= Self.count / 2, state.phase == .copying {
          withUnsafeCurrentTask { $0?.cancel() }
        }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    let there = try await new.keyCount() - 1
    #expect((Self.count / 2..<Self.count).contains(there))
    try await old.remove(keys: [keys[0], keys[10], keys[Self.count - 1]])
    try await old.write(Data("again".utf8), key: keys[10])
    try await old.write(Data("changed".utf8), key: keys[20])
    try await old.write([(keys[30], Data("changed".utf8)), (CacheKey(verbatim: "new"), Data())])
    let summary = try await old.copy(to: new)
    #expect(try await new.readAllEntries() == old.readAllEntries())
    #expect(summary.written < Self.count)
  }

  @Test("A copy to a target that fails throws its error, and is resumed once the target works again")
  func failing() async throws {
    let old = MemoryStorageEngine()
    let new = FailingStorageEngine(MemoryStorageEngine())
    try await fill(old, hostileKeys(Self.count))
    new.failCall(5, with: StorageError(.diskFull, "Full")) { $0.isWrite }
    let error = await #expect(throws: StorageError.self) {
      try await old.copy(to: new, options: CopyOptions(batchSize: 5_000))
    }
    #expect(error?.code == .diskFull)
    try await old.copy(to: new)
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }

  @Test("An unfinished copy is not completed as a copy of another source", arguments: [true, false])
  func anotherSource(storesTimes: Bool) async throws {
    let (old, another, base) = (MemoryStorageEngine(), MemoryStorageEngine(), MemoryStorageEngine())
    let new: any StorageEngine = storesTimes ? base : WithoutTimes(base: base)
    let keys = hostileKeys(Self.count)
    try await fill(old, keys)
    // The same keys with other values, at other times.
    try await another.write(keys.map { ($0, Data("another".utf8)) })
    let task = Task {
      try await old.copy(to: new, options: CopyOptions(batchSize: 1_000)) { state in
        if state.entries >= Self.count / 2, state.phase == .copying {
          withUnsafeCurrentTask { $0?.cancel() }
        }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    let before = try await new.readAllEntries()
    let error = await #expect(throws: StorageError.self) { try await another.copy(to: new) }
    #expect(error?.code == .unsupported)
    #expect(error?.message.contains("removeAllData") == true)
    #expect(try await new.readAllEntries() == before)
    try await old.copy(to: new)
    #expect(try await new.readAllEntries().map(\.data) == old.readAllEntries().map(\.data))
  }

  @Test(
    "A begun copy whose source has lost most of its entries since is resumed, where times distinguish entries",
    arguments: [true, false])
  func expiredSource(storesTimes: Bool) async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let new: any StorageEngine = storesTimes ? base : WithoutTimes(base: base)
    let keys = hostileKeys(100)
    try await fill(old, keys)
    try await begin(copying: old, to: new, entries: 50)
    try await old.remove(keys: keys.enumerated().filter { !$0.offset.isMultiple(of: 20) }.map(\.element))
    try await old.write(Data("later".utf8), key: CacheKey(verbatim: "later"))
    let before = try await new.readAllEntries()
    if storesTimes {
      // Two of those that are left had not been copied yet.
      #expect(try await old.copy(to: new).written == 3)
      #expect(try await new.readAllEntries() == old.readAllEntries())
    } else {
      // Without times, most entries of the target could be from any source.
      let error = await #expect(throws: StorageError.self) { try await old.copy(to: new) }
      #expect(error?.code == .unsupported)
      #expect(try await new.readAllEntries() == before)
    }
  }

  @Test(
    "An unfinished copy is not completed as one of a source that has none of its entries",
    arguments: [true, false])
  func sourceWithOtherKeys(storesTimes: Bool) async throws {
    let (old, another, base) = (MemoryStorageEngine(), MemoryStorageEngine(), MemoryStorageEngine())
    let new: any StorageEngine = storesTimes ? base : WithoutTimes(base: base)
    try await fill(old, hostileKeys(100))
    try await fill(another, hostileKeys(100).map { CacheKey(verbatim: "\($0.value.prefix(100)) of another") })
    try await begin(copying: old, to: new, entries: 50)
    let before = try await new.readAllEntries()
    let error = await #expect(throws: StorageError.self) { try await another.copy(to: new) }
    #expect(error?.code == .unsupported)
    #expect(try await new.readAllEntries() == before)
  }

  @Test("The target of an unfinished copy is not dumped, and that of a finished one is")
  func dumped() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(100))
    try await begin(copying: old, to: new, entries: 50)
    await expectError(.unsupported) { try await new.dump(to: archive) }
    #expect(try names(in: place.url).isEmpty)
    try await old.copy(to: new)
    #expect(try await new.dump(to: archive).entryCount == 100)
  }

  @Test("A copy that begins after a dump has checked for one is not dumped either")
  func dumpedMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(100))
    let late = BegunWhenRead(base: new) { try await begin(copying: old, to: new, entries: 50) }
    await expectError(.unsupported) { try await late.dump(to: place.appending("archive")) }
    #expect(try names(in: place.url).isEmpty)
  }

  @Test("Nothing is restored into the target of an unfinished copy, which would remove it when it is resumed")
  func restored() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let (old, new, another) = (MemoryStorageEngine(), MemoryStorageEngine(), MemoryStorageEngine())
    let key = CacheKey(verbatim: "another")
    try await another.write(Data(), key: key)
    try await another.dump(to: archive)
    try await fill(old, hostileKeys(100))
    try await begin(copying: old, to: new, entries: 50)
    let before = try await new.readAllEntries()
    for merging in [true, false] {
      await expectError(.unsupported) { try await new.restore(from: archive, merging: merging) }
    }
    #expect(try await new.readAllEntries() == before)
    // Nor if the copy begins while the archive is verified.
    let reader = try await ArchiveReader(archive)
    await expectError(.unsupported) { try await new.restore(reader, merging: true, nil) }
    try await old.copy(to: new)
    try await new.restore(from: archive, merging: true)
    #expect(try await new.keyExists(key))
    #expect(try await new.keyCount() == 101)
  }

  /// Copies until this many entries are in the target.
  private func begin(
    copying source: MemoryStorageEngine, to target: any StorageEngine, entries count: Int
  ) async throws {
    let task = Task {
      // One entry in each batch.
      try await source.copy(to: target, options: CopyOptions(batchSize: 1)) { state in
        if state.entries == count, state.phase == .copying { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await target.keyCount() == count + 1)
  }

  @Test("A merge that was interrupted copies what has changed since to a target with times of its own")
  func mergeWithoutTimes() async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    let (ours, theirs) = (CacheKey(verbatim: "k"), CacheKey(verbatim: "theirs"))
    try await old.write([(ours, Data("old".utf8)), (theirs, Data("old".utf8))])
    // Later in the target, where a merge keeps it.
    try await base.write(Data("theirs".utf8), key: theirs)
    let new = FailingStorageEngine(WithoutTimes(base: ChangingSource(base: base, source: old, key: ours)))
    new.failCall(1, with: StorageError(.io, "Lost"), .afterwards) { $0.method == .writeEntries }
    await #expect(throws: StorageError.self) {
      try await old.copy(to: new, options: CopyOptions(target: .merge))
    }
    #expect(try await base.read(key: ours) == Data("old".utf8))
    // It is neither a source nor empty.
    await #expect(throws: StorageError.self) { try await base.copy(to: MemoryStorageEngine()) }
    try await old.copy(to: WithoutTimes(base: base), options: CopyOptions(target: .merge))
    #expect(try await base.read(key: ours) == Data("new".utf8))
    #expect(try await base.read(key: theirs) == Data("theirs".utf8))
    #expect(try await base.keyCount() == 2)
  }

  @Test("What says that a copy is unfinished does not expire before its entries")
  func expiring() async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(Self.count))
    let time = MutexProtected(0)
    let clock = ExpiryClock(
      now: { Date(timeIntervalSince1970: Double(time.withLock { $0 })) },
      uptime: { .seconds(time.withLock { $0 }) })
    let new = base.expiring(after: .seconds(100), clock: clock)
    let task = Task {
      try await old.copy(to: new, options: CopyOptions(batchSize: 1_000)) { state in
        guard state.phase == .copying else { return }
        time.withLock { $0 += 1 }
        if state.entries >= Self.count / 2 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    // The marker was written first, and once more with the last entries.
    time.withLock { $0 = 100 }
    #expect(try await new.keyCount() > 0)
    await #expect(throws: StorageError.self) { try await new.copy(to: MemoryStorageEngine()) }
  }
}

/// An engine that calls a closure before all entries are read.
private struct BegunWhenRead: StorageLayer {
  let base: MemoryStorageEngine
  let begin: @Sendable () async throws -> Void
  func readAllEntries() async throws -> [StorageEntry] {
    try await begin()
    return try await base.readAllEntries()
  }
}

/// A target during whose writes the source changes.
private struct ChangingSource: StorageLayer {
  let base: MemoryStorageEngine
  let source: MemoryStorageEngine
  let key: CacheKey
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.contains(where: { $0.key == key }) { try await source.write(Data("new".utf8), key: key) }
    try await base.write(dataAndKeys)
  }
}
