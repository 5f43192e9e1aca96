import Foundation
import StockroomCore
import StockroomEngines
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Copies that are ended and resumed")
struct ResumingTests {
  private static let count = 600

  @Test(
    "A copy whose process is killed goes on where it was, and nothing else accepts the target",
    arguments: ["files", "sqlite", "lmdb", "leveldb"])
  func killed(name: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let paths = (directories.0.url.path(), directories.1.url.path())
    let old = try await EngineCatalogue.open("sqlite", in: directories.0.url)
    try await fill(old, hostileKeys(Self.count))
    await #expect(processExitsWith: .signal(SIGKILL)) {
      [name = name as String, source = paths.0 as String, target = paths.1 as String] in
      let old = try await EngineCatalogue.open("sqlite", in: URL(filePath: source))
      let new = try await EngineCatalogue.open(name, in: URL(filePath: target))
      try await old.copy(to: new, options: CopyOptions(batchSize: 10_000)) { state in
        if state.phase == .copying, state.entries >= Self.count / 2 { kill(getpid(), SIGKILL) }
      }
    }
    let new = try await EngineCatalogue.open(name, in: directories.1.url)
    let there = try await new.keyCount() - 1
    #expect((Self.count / 2..<Self.count).contains(there))
    for options in [CopyOptions(target: .refuse), CopyOptions(target: .merge)] {
      let error = await #expect(throws: StorageError.self) { try await old.copy(to: new, options: options) }
      #expect(error?.code == .unsupported)
    }
    // Nor is it taken for a source.
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
}
