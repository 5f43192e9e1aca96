import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Copies")
struct CopyTests {
  private static let engines = EngineCatalog.onThisMachine.map(\.name)
  /// The number of entries copied between two engines, by default or from `STOCKROOM_COPIED_ENTRIES`.
  private static let count =
    ProcessInfo.processInfo.environment["STOCKROOM_COPIED_ENTRIES"].flatMap { Int($0) } ?? 150

  @Test(
    "A copy has the keys, values, times and order of the source, whatever the engines are",
    arguments: engines, engines)
  func pairs(source: String, target: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let old = try await EngineCatalog.open(source, in: directories.0.url)
    let new = try await EngineCatalog.open(target, in: directories.1.url)
    let keys = hostileKeys(Self.count)
    try await fill(old, keys)
    let summary = try await old.copy(to: new, options: CopyOptions(batchSize: 4_000))
    let entries = try await old.readAllEntries()
    #expect(entries.map(\.key) == keys)
    #expect(try await new.readAllEntries() == entries)
    #expect(summary.entries == Self.count)
    #expect(summary.written == Self.count)
    #expect(summary.bytes == entries.reduce(0) { $0 + $1.data.count })
    #expect(summary.areTimesVerified)
    for engine in [old, new] { try await engine.close() }
  }

  @Test("Files that were copied in with one time have the order of their keys in a copy", arguments: engines)
  func filesWithOneTime(target: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let old = try await EngineCatalog.open("files", in: directories.0.url)
    // Without metadata, as a program leaves them that copies times and no extended attributes.
    for number in 0..<100 {
      let file = directories.0.appending("key\(number * 37 % 100).entry")
      try Data("\(number)".utf8).write(to: file)
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSince1970: 1_700_000_000)], ofItemAtPath: file.path)
    }
    let new = try await EngineCatalog.open(target, in: directories.1.url)
    #expect(try await old.copy(to: new).written == 100)
    let entries = try await old.readAllEntries()
    #expect(entries.map(\.key) == entries.map(\.key).sorted())
    #expect(try await new.readAllEntries() == entries)
    for engine in [old, new] { try await engine.close() }
  }

  @Test(
    "An order that is not that of the times is copied from and to an engine without sequence numbers",
    arguments: [true, false], [false, true])
  func withoutSequences(isSource: Bool, hasSequences: Bool) async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    // Older entries that were merged in later are behind the others.
    for age in [3_600, 7_200, 1_800] {
      try await old.writeEntries(
        hostileKeys(200).map {
          let date = Date(timeIntervalSince1970: 1_700_000_000 - Double(age))
          return StorageEntry(
            key: CacheKey(verbatim: "\(age) \($0.value)"), data: value(of: $0, size: age % 700),
            createdAt: date, updatedAt: date)
        })
    }
    let bare = WithoutSequences(base: isSource ? old : new)
    let other: any StorageEngine =
      hasSequences ? (isSource ? new : old) : WithoutSequences(base: isSource ? new : old)
    // Some at a time: the values of all do not fit.
    let options = CopyOptions(batchSize: 2_000)
    let summary =
      try await isSource
      ? bare.copy(to: other, options: options) : other.copy(to: bare, options: options)
    #expect(summary.areTimesVerified)
    #expect(summary.written == 600)
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }

  @Test(
    "What is read through layers is copied, and written through others",
    arguments: EngineCatalog.layers.map(\.name))
  func layers(name: String) async throws {
    let directory = try TemporaryDirectory()
    let layered = try await EngineCatalog.open("memory+\(name)", in: directory.url)
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(150))
    try await old.copy(to: layered)
    try await layered.copy(to: new)
    #expect(try await new.readAllEntries() == old.readAllEntries())
  }

  @Test("Values larger than a batch are copied, one at a time")
  func largeValues() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    for size in [0, 1, 300_000, 10, 200_000, 250_000, 5] {
      try await old.write(Data(repeating: 7, count: size), key: CacheKey(verbatim: "\(size)"))
    }
    let progress = MutexProtected<[CopyProgress]>([])
    try await old.copy(to: new, options: CopyOptions(batchSize: 100_000)) { state in
      progress.withLock { $0.append(state) }
    }
    #expect(try await new.readAllEntries() == old.readAllEntries())
    let batches = progress.withLock { $0 }.filter { $0.phase == .copying }.map(\.entries)
    #expect(batches == [2, 3, 4, 5, 6, 7])
    #expect(progress.withLock { $0.last }?.totalEntries == 7)
  }

  @Test("A target that is not empty is refused, and left as it is", arguments: [CopyTarget.refuse, .resume])
  func refusal(policy: CopyTarget) async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(20))
    try await new.write(Data("mine".utf8), key: CacheKey(verbatim: "a"))
    let before = try await new.readAllEntries()
    let error = await #expect(throws: StorageError.self) {
      try await old.copy(to: new, options: CopyOptions(target: policy))
    }
    #expect(error?.code == .unsupported)
    #expect(try await new.readAllEntries() == before)
  }

  @Test("A merge keeps what is in the target, and of what both have what was updated last")
  func merge() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    func entry(_ name: String, _ value: String, _ updatedAt: Double) -> StorageEntry {
      StorageEntry(
        key: CacheKey(verbatim: name), data: Data(value.utf8), createdAt: Date(timeIntervalSince1970: 5),
        updatedAt: Date(timeIntervalSince1970: updatedAt))
    }
    let mine = [
      entry("later here", "t", 20), entry("mine", "t", 10), entry("later there", "t", 10),
      entry("same time", "t", 10),
    ]
    let yours = [
      entry("new 1", "s", 10), entry("later there", "s", 20), entry("same time", "s", 10),
      entry("later here", "s", 10), entry("new 0", "s", 10),
    ]
    try await new.writeEntries(mine)
    try await old.writeEntries(yours)
    for round in 0..<2 {
      let summary = try await old.copy(to: new, options: CopyOptions(target: .merge))
      #expect(
        try await new.readAllEntries() == [mine[0], mine[1], yours[1], yours[2], yours[0], yours[4]])
      #expect(summary.written == (round == 0 ? 4 : 0))
    }
  }

  @Test("A target that does not return what was written is detected")
  func alteration() async throws {
    let old = MemoryStorageEngine()
    try await fill(old, hostileKeys(40))
    let alterations: [@Sendable (inout StorageEntry) -> Void] = [
      { if $0.data.count == 11 { $0.data[3] ^= 1 } }, { $0.updatedAt += 0.001 }, { $0.createdAt -= 1 },
      { $0.key = CacheKey(verbatim: $0.key.value.uppercased()) },
    ]
    for alter in alterations {
      let error = await #expect(throws: StorageError.self) {
        try await old.copy(to: Altering(base: MemoryStorageEngine(), alter: alter))
      }
      #expect(error?.code == .corrupted)
    }
  }

  @Test(
    "Times that a file system has truncated count as copied",
    arguments: [Int64(100), 10_000_000, 1_000_000_000, 2_000_000_000])
  func coarseTimes(unit: Int64) async throws {
    let (old, base) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(40))
    let new = Altering(base: base) { entry in
      func cut(_ date: Date) -> Date {
        let time = Timestamp(date).nanoseconds
        return Timestamp(nanoseconds: time - time % unit).date
      }
      entry.updatedAt = cut(entry.updatedAt)
      entry.createdAt = min(entry.createdAt, entry.updatedAt)
    }
    #expect(try await old.copy(to: new).written == 40)
    #expect(try await new.readAllDataAndKeys().count == 40)
  }

  @Test("Entries that were updated before the first time of a file system are copied to files")
  func earlyTimes() async throws {
    let place = try TemporaryDirectory()
    let old = MemoryStorageEngine()
    let date = Date(timeIntervalSince1970: -4e9)
    try await old.writeEntries([
      StorageEntry(key: CacheKey(verbatim: "1"), data: Data("1".utf8), createdAt: date, updatedAt: date)
    ])
    let new = try await EngineCatalog.open("files", in: place.url)
    #expect(try await old.copy(to: new).written == 1)
    #expect(try await new.readAllData() == [Data("1".utf8)])
    try await new.close()
  }

  @Test("A source without a feed that changes all the time is detected")
  func constantlyChangingSource() async throws {
    let error = await #expect(throws: StorageError.self) {
      try await ConstantlyChangingLayer(base: MemoryStorageEngine()).copy(to: MemoryStorageEngine())
    }
    #expect(error?.code == .conflict)
  }

  @Test("A copy to a target that cannot store times has the keys and values, and its summary says so")
  func withoutTimes() async throws {
    let (old, new) = (MemoryStorageEngine(), MemoryStorageEngine())
    try await fill(old, hostileKeys(150))
    #expect(try await !old.copy(to: WithoutTimes(base: new)).areTimesVerified)
    let entries = try await (old.readAllEntries(), new.readAllEntries())
    #expect(entries.0.map(\.key) == entries.1.map(\.key))
    #expect(entries.0.map(\.data) == entries.1.map(\.data))
  }
}
