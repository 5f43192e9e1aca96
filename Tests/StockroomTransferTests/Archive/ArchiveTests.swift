import Foundation
import StockroomCore
import StockroomMemory
import StockroomTransfer
import Synchronization
import TestFixtures
import Testing

@Suite("Archives") struct ArchiveTests {
  private func entries(in archive: URL) async throws -> [StorageEntry] {
    let reader = try await ArchiveReader(archive)
    var entries: [StorageEntry] = []
    while let more = try await reader.nextEntries() { entries += more }
    return entries
  }

  @Test(
    "An archive holds every entry of an engine with its times, in the order of creation",
    arguments: engineNames)
  func dumping(name: String) async throws {
    let place = try TemporaryDirectory()
    let archive = place.beside("archive")
    let engine = try await open(name, place.url)
    try await fill(engine)
    let expected = try await engine.readAllEntries()
    let summary = try await engine.dump(to: archive)
    #expect(try await entries(in: archive) == expected)
    #expect(summary.entryCount == expected.count)
    #expect(summary.contentSize == expected.reduce(0) { $0 + $1.data.count + $1.key.value.utf8.count })
    #expect(summary.archiveSize == (try Data(contentsOf: archive)).count)
    #expect(summary.isSnapshot)
    #expect(try await Archive.verify(archive) == summary)
    try await engine.close()
  }

  @Test("An archive restores values, times and order to every engine", arguments: engineNames)
  func restoring(name: String) async throws {
    let place = try TemporaryDirectory()
    let source = MemoryStorageEngine()
    // More than one batch.
    try await fill(source, largest: 9_000_000)
    let summary = try await source.dump(to: place.beside("archive"))
    let engine = try await open(name, place.url)
    let progress = Mutex<[ArchiveProgress]>([])
    let restored = try await engine.restore(from: place.beside("archive")) { step in
      progress.withLock { $0.append(step) }
    }
    #expect(restored == summary)
    let expected = try await source.readAllEntries()
    let found = try await engine.readAllEntries()
    #expect(found == expected)
    let steps = progress.withLock { $0 }
    #expect(steps.count > 1)
    #expect(steps.last?.entryCount == expected.count)
    #expect(steps.last?.totalEntryCount == expected.count)
    #expect(steps.last?.contentSize == summary.contentSize)
    try await engine.close()
  }

  @Test("An empty engine has an archive, which restores nothing")
  func empty() async throws {
    let place = try TemporaryDirectory()
    let summary = try await MemoryStorageEngine().dump(to: place.beside("archive"))
    #expect(summary.entryCount == 0)
    let engine = MemoryStorageEngine()
    try await engine.restore(from: place.beside("archive"))
    #expect(try await engine.keyCount() == 0)
  }

  @Test("Dates of any size come back as they were, or as the first or last one that there is")
  func dates() async throws {
    let place = try TemporaryDirectory()
    let dates = [0, 0.000_000_1, -0.75, 785_000_000.123_456_7, -978_307_200, 8e9, -8e9].map {
      Date(timeIntervalSinceReferenceDate: $0)
    }
    let written = (dates + [.distantPast, .distantFuture]).enumerated().map {
      StorageEntry(key: key("\($0)"), data: Data(), createdAt: $1, updatedAt: $1)
    }
    try await FixedEntriesEngine(base: MemoryStorageEngine(), entries: written).dump(
      to: place.beside("archive"))
    let found = try await entries(in: place.beside("archive"))
    #expect(found.dropLast(2) == written.dropLast(2)[...])
    #expect(found.suffix(2).map { $0.createdAt < Date() } == [true, false])
  }

  @Test("An entry may be divided between blocks at any byte of its header, its key and its value")
  func divided() async throws {
    let place = try TemporaryDirectory()
    for rest in 0..<45 {
      // A block has 1 MiB, and each entry takes 26 bytes, its key and its value of it.
      let first = StorageEntry(
        key: key("a"), data: Data(count: 1 << 20 - 27 - rest), createdAt: .distantPast,
        updatedAt: .distantPast)
      var second = first
      (second.key, second.data) = (key("0123456789"), Data("value".utf8))
      try await FixedEntriesEngine(base: MemoryStorageEngine(), entries: [first, second])
        .dump(to: place.beside("archive"), replacing: true)
      let found = try await entries(in: place.beside("archive"))
      #expect(found.map(\.key) == [first.key, second.key], "\(rest)")
      #expect(found.map(\.data) == [first.data, second.data], "\(rest)")
    }
  }

  @Test("An archive is its owner's alone, replaces nothing unless it may, and leaves no other file")
  func files() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = MemoryStorageEngine()
    try await engine.write(Data("1".utf8), key: key("1"))
    try await engine.dump(to: archive)
    #expect(try modes(below: place.url)["archive"] == 0o600)
    await expectError(.unsupported) { try await engine.dump(to: archive) }
    #expect(try await Archive.verify(archive).entryCount == 1)
    try await engine.write(Data("2".utf8), key: key("2"))
    try await engine.dump(to: archive, replacing: true)
    #expect(try await Archive.verify(archive).entryCount == 2)
    await expectError(.unsupported) { try await engine.dump(to: place.url, replacing: true) }
    await expectError(.io) { try await engine.dump(to: place.appending("absent/archive")) }
    #expect(try names(in: place.url) == ["archive"])
    #expect(try names(in: place.parent) == ["place"])
  }

  @Test("A name with a zero byte is refused, and no archive is written or read under the name before it")
  func zeroByte() async throws {
    let place = try TemporaryDirectory()
    try await MemoryStorageEngine().dump(to: place.appending("cut"))
    let before = try Data(contentsOf: place.appending("cut"))
    let engine = MemoryStorageEngine()
    try await fill(engine, largest: 10)
    let archive = place.appending("cut\0off")
    await expectError(.unsupported) { try await engine.dump(to: archive, replacing: true) }
    await expectError(.unsupported) { try await ArchiveReader(archive) }
    #expect(try names(in: place.url) == ["cut"])
    #expect(try Data(contentsOf: place.appending("cut")) == before)
  }

  @Test("The name of an archive may be as long as names can be")
  func longName() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending(String(repeating: "é", count: 127))
    let engine = MemoryStorageEngine()
    try await engine.dump(to: archive)
    try await engine.dump(to: archive, replacing: true)
    #expect(try names(in: place.url).map(\.utf8.count) == [254])
  }

  @Test(
    "An engine with entries is refused, unless the archive is merged, which replaces those of the same keys")
  func merging() async throws {
    let place = try TemporaryDirectory()
    let archive = place.beside("archive")
    let source = MemoryStorageEngine()
    try await source.write([(key("a"), Data("new".utf8)), (key("c"), Data("new".utf8))])
    try await source.dump(to: archive)
    let engine = MemoryStorageEngine()
    try await engine.write([(key("b"), Data("old".utf8)), (key("a"), Data("old".utf8))])
    await expectError(.unsupported) { try await engine.restore(from: archive) }
    #expect(try await engine.keyCount() == 2)
    try await engine.restore(from: archive, merging: true)
    let found = try await engine.readAllEntries()
    #expect(found.map(\.key) == [key("b"), key("a"), key("c")])
    #expect(found.map(\.data) == ["old", "new", "new"].map { Data($0.utf8) })
  }

  @Test("A restore whose second batch fails after a part of it leaves the engine empty")
  func failing() async throws {
    let place = try TemporaryDirectory()
    let source = MemoryStorageEngine()
    try await fill(source, largest: 9_000_000)
    try await source.dump(to: place.beside("archive"))
    let engine = SecondBatchRefuser()
    await expectError(.diskFull) { try await engine.restore(from: place.beside("archive")) }
    #expect(engine.batches.load(ordering: .relaxed) == 2)
    #expect(try await engine.keyCount() == 0)
  }

  @Test("A dump whose file is removed by another program throws, and the earlier archive stays")
  func removedMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = MemoryStorageEngine()
    try await engine.write(Data("1".utf8), key: CacheKey(verbatim: "a"))
    try await engine.dump(to: archive)
    let before = try Data(contentsOf: archive)
    let error = await #expect(throws: StorageError.self) {
      try await engine.dump(to: archive, replacing: true) { _ in
        for name in (try? FileManager.default.contentsOfDirectory(atPath: place.url.path)) ?? []
        where name.contains(".partial-") { try? FileManager.default.removeItem(at: place.appending(name)) }
      }
    }
    #expect(error?.code == .io)
    #expect(try Data(contentsOf: archive) == before)
  }

  @Test("An engine without snapshots and transactions is dumped only if others may write meanwhile")
  func withoutSnapshots() async throws {
    let place = try TemporaryDirectory()
    let engine = SecondBatchRefuser()
    try await engine.write(Data("1".utf8), key: key("1"))
    await expectError(.unsupported) { try await engine.dump(to: place.appending("archive")) }
    #expect(try names(in: place.url).isEmpty)
    let summary = try await engine.dump(to: place.appending("archive"), requiringSnapshot: false)
    #expect(!summary.isSnapshot)
    #expect(try await Archive.verify(place.appending("archive")) == summary)
  }

  @Test("A dump that is cancelled leaves nothing", arguments: engineNames)
  func cancelling(name: String) async throws {
    let place = try TemporaryDirectory()
    let archives = try TemporaryDirectory()
    let engine = try await open(name, place.url)
    try await fill(engine)
    let archive = archives.appending("archive")
    let dump = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await engine.dump(to: archive)
    }
    await #expect(throws: CancellationError.self) { try await dump.value }
    #expect(try names(in: archives.url).isEmpty)
    try await engine.close()
  }
}

/// An engine with the six required methods and batches, of which the second fails after its first entry.
private final class SecondBatchRefuser: MinimalForwardingEngine {
  let base: any StorageEngine = MemoryStorageEngine()
  let batches = Atomic(0)

  func writeEntries(_ entries: [StorageEntry]) async throws {
    let number = batches.add(1, ordering: .relaxed).newValue
    let written = number == 2 ? entries.prefix(1) : entries[...]
    for entry in written { try await base.write(entry.data, key: entry.key) }
    if number == 2 { throw StorageError(.diskFull, "The second batch is refused.") }
  }
}
