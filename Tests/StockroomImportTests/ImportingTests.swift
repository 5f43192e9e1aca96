import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomTestSupport
import TestFixtures
import Testing

struct ImportingTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  private func makeSource(_ values: [(String, Data)]) throws -> BodegaSQLiteSource {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.execute("BEGIN")
    for (key, data) in values { try database.insert(key, data) }
    try database.execute("COMMIT")
    database.close()
    return BodegaSQLiteSource(at: database.url)
  }

  private static func entries(_ count: Int) -> [(String, Data)] {
    (0..<count).map { ("key \($0)", Data("value \($0)".utf8)) }
  }

  @Test("A target that has entries is refused, and keeps them")
  func targetNotEmpty() async throws {
    let source = try makeSource(Self.entries(3))
    let engine = MemoryStorageEngine()
    try await engine.write(Data("mine".utf8), key: CacheKey(verbatim: "mine"))
    let error = await #expect(throws: StorageError.self) { try await source.import(into: engine) }
    #expect(error?.code == .targetNotEmpty)
    #expect(try await engine.allKeys() == [CacheKey(verbatim: "mine")])
  }

  @Test("A target that gets an entry while the source is opened is refused as well, and keeps it")
  func targetFilledMeanwhile() async throws {
    let engine = MemoryStorageEngine()
    let mine = CacheKey(verbatim: "mine")
    let source = SourceOpenedSlowly(base: try makeSource(Self.entries(3))) {
      try await engine.write(Data("mine".utf8), key: mine)
    }
    let error = await #expect(throws: StorageError.self) { try await source.import(into: engine) }
    #expect(error?.code == .targetNotEmpty)
    #expect(try await engine.allKeys() == [mine])
  }

  @Test("The source is not read on the threads of tasks", arguments: [true, false])
  func reading(isHashed: Bool) async throws {
    let source = SourceReadByThreads(hasHashedKeys: isHashed)
    let engine = MemoryStorageEngine()
    #expect(try await source.import(into: engine).imported == 2_500)
    #expect(try await engine.keyExists(CacheKey(verbatim: isHashed ? "7" : CacheKey("7").value)))
    let readers = source.isReadByTask.withLock { $0 }
    // For the key, for the value, and with hashed keys once more to find the text of the key.
    #expect(readers.count == 2_500 * (isHashed ? 3 : 2))
    #expect(!readers.contains(true))
  }

  @Test("Merging never replaces an entry that is there, and counts those left out")
  func merging() async throws {
    let source = try makeSource(Self.entries(3))
    let engine = MemoryStorageEngine()
    let key = CacheKey(verbatim: "key 1")
    try await engine.write(Data("mine".utf8), key: key)
    let createdAt = try await engine.createdAt(key: key)
    let report = try await source.import(into: engine, merging: true)
    #expect(report.imported == 2)
    #expect(report.alreadyPresent == 1)
    #expect(try await engine.read(key: key) == Data("mine".utf8))
    #expect(try await engine.createdAt(key: key) == createdAt)
    #expect(try await engine.keyCount() == 3)
    #expect(try await source.import(into: engine, merging: true).alreadyPresent == 3)
  }

  @Test("An import that failed half way is completed by another one that merges")
  func resuming() async throws {
    let values = Self.entries(2_500)
    let source = try makeSource(values)
    let engine = MemoryStorageEngine()
    let failing = FailingStorageEngine(engine)
    failing.failCall(2, where: \.isWrite)
    await #expect(throws: StorageError.self) { try await source.import(into: failing) }
    #expect(try await engine.keyCount() == 1_000)
    let report = try await source.import(into: engine, merging: true)
    #expect(report.alreadyPresent == 1_000)
    #expect(report.imported == 1_500)
    let entries = try await engine.readAllEntries()
    #expect(entries.map(\.key.value) == values.map(\.0))
    #expect(entries.map(\.data) == values.map(\.1))
  }

  @Test("Batches are bounded in bytes and in entries, and progress reports each")
  func batches() async throws {
    let large = (0..<12).map { ("large \($0)", Data(repeating: UInt8($0), count: 1 << 20)) }
    let source = try makeSource(large + Self.entries(1_500))
    let engine = RecordingEngine()
    let steps = MutexProtected<[ImportProgress]>([])
    let report = try await source.import(into: engine) { progress in
      steps.withLock { $0.append(progress) }
    }
    #expect(report.bytes == 12 << 20 + Self.entries(1_500).reduce(0) { $0 + $1.1.count })
    for batch in engine.batches {
      #expect(batch.count <= 1_000)
      #expect(batch.reduce(0) { $0 + $1.data.count } <= 9 << 20)
    }
    let seen = steps.withLock { $0 }
    #expect(seen.count == engine.batches.count)
    #expect(seen.count >= 3)
    #expect(seen.map(\.completed) == seen.map(\.completed).sorted())
    #expect(seen.last?.completed == 1_512)
    #expect(seen.allSatisfy { $0.total == 1_512 })
    #expect(seen.last?.bytes == report.bytes)
  }

  @Test("Batches are bounded in the bytes of keys, which may be longer than those of an engine")
  func batchesOfLongKeys() async throws {
    let source = SourceOfLongKeys()
    let readFirst = MutexProtected<Int?>(nil)
    let steps = MutexProtected<[Int]>([])
    let keys = ImportKeys.identifiers { data in
      readFirst.withLock { if $0 == nil { $0 = source.readCount } }
      return SourceOfLongKeys.key(String(decoding: data, as: UTF8.self))
    }
    let report = try await source.import(into: MemoryStorageEngine(), keys: keys) { progress in
      steps.withLock { $0.append(progress.completed) }
    }
    #expect(report.imported == source.count)
    #expect(readFirst.withLock { $0 } == 8)
    #expect(steps.withLock { $0 } == [8, 16, 20])
  }

  @Test("A target that does not return what was written makes the import throw")
  func verification() async throws {
    let source = try makeSource(Self.entries(3))
    let engine = RecordingEngine { $0 + Data([0]) }
    let error = await #expect(throws: StorageError.self) { try await source.import(into: engine) }
    #expect(error?.code == .corrupted)
    let sameLength = RecordingEngine { data in Data(data.reversed()) }
    await #expect(throws: StorageError.self) { try await source.import(into: sameLength) }
  }

  @Test("A key of more than 511 bytes is refused before anything is written, or hashed as a store does")
  func longKeys() async throws {
    let long = String(repeating: "k", count: 512)
    let source = try makeSource(Self.entries(2_000) + [(long, Data())])
    try await expectRefusal(of: source, .invalidKey, keys: .asStored)
    let engine = MemoryStorageEngine()
    try await source.import(into: engine)
    #expect(try await engine.keyExists(CacheKey(long)))
  }

  @Test("Two entries that would have one key are refused before anything is written")
  func duplicates() async throws {
    let long = String(repeating: "k", count: 512)
    try await expectRefusal(
      of: makeSource(Self.entries(2_000) + [(long, Data()), (CacheKey(long).value, Data())]), .unsupported,
      "Two")
  }

  @Test("A table without rows is imported as nothing")
  func empty() async throws {
    #expect(try await makeSource([]).import(into: MemoryStorageEngine()) == ImportReport())
  }

  @Test("A cancelled import throws")
  func cancellation() async throws {
    let source = try makeSource(Self.entries(10))
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return try await source.import(into: MemoryStorageEngine())
    }
    await #expect(throws: CancellationError.self) { try await task.value }
  }
}

/// A source that calls a closure before it is opened.
private struct SourceOpenedSlowly: ImportSource {
  let base: BodegaSQLiteSource
  let work: @Sendable () async throws -> Void
  var description: String { base.description }

  func open() async throws -> any ImportContent {
    try await work()
    return try await base.open()
  }
}

/// A source with 2,500 numbers under their hashes, which records whether each read is made by a task.
private final class SourceReadByThreads: ImportSource, ImportContent {
  let isReadByTask = MutexProtected<[Bool]>([])
  let hasHashedKeys: Bool
  let count = 2_500
  let omissions: [String] = []
  let description = "numbers"

  init(hasHashedKeys: Bool) { self.hasHashedKeys = hasHashedKeys }

  func open() async throws -> any ImportContent { self }

  func key(at index: Int) throws -> CacheKey {
    noteReader()
    return CacheKey("\(index)")
  }

  func entry(at index: Int) throws -> StorageEntry {
    noteReader()
    let date = Date(timeIntervalSinceReferenceDate: Double(index))
    return StorageEntry(
      key: CacheKey("\(index)"), data: Data("[\(index)]".utf8), createdAt: date, updatedAt: date)
  }

  private func noteReader() {
    let isTask = withUnsafeCurrentTask { $0 != nil }
    isReadByTask.withLock { $0.append(isTask) }
  }
}

/// A source with keys of a little more than a megabyte, which counts the keys that are read.
private final class SourceOfLongKeys: ImportSource, ImportContent {
  private let reads = MutexProtected(0)
  let count = 20
  let omissions: [String] = []
  let description = "long keys"

  var readCount: Int { reads.withLock { $0 } }

  static func key(_ index: String) -> String { index + String(repeating: "k", count: 1 << 20) }

  func open() async throws -> any ImportContent { self }

  func key(at index: Int) throws -> CacheKey {
    reads.withLock { $0 += 1 }
    return CacheKey(verbatim: Self.key("\(index)"))
  }

  func entry(at index: Int) throws -> StorageEntry {
    let date = Date(timeIntervalSinceReferenceDate: Double(index))
    return StorageEntry(
      key: CacheKey(verbatim: Self.key("\(index)")), data: Data("\(index)".utf8), createdAt: date,
      updatedAt: date)
  }
}
