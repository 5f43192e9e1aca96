import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTransfer
import Testing

@Suite("Copies of a source that loses entries meanwhile")
struct LosingSourceTests {
  @Test("A source whose entries expire all the time is copied", arguments: [CopyTarget.resume, .merge])
  func expiring(policy: CopyTarget) async throws {
    let seconds = MutexProtected(0)
    let clock = ExpiryClock(
      now: { Date(timeIntervalSince1970: Double(seconds.withLock { $0 })) },
      uptime: { .seconds(seconds.withLock { $0 }) })
    let source = MemoryStorageEngine().expiring(clock: clock)
    for index in 0..<300 {
      let key = CacheKey(verbatim: "\(index)")
      try await source.write(Data("value".utf8), key: key, expiresAfter: .seconds(index + 1))
    }
    let target = MemoryStorageEngine()
    let summary = try await source.copy(to: target, options: CopyOptions(target: policy)) { _ in
      seconds.withLock { $0 += 1 }
    }
    #expect(try await target.keyCount() == summary.entries)
    let rest = try await source.readAllEntries()
    #expect(!rest.isEmpty)
    #expect(try await target.readEntries(keys: rest.map(\.key)) == rest)
  }

  @Test("A target that keeps what the source has lost is detected")
  func notRemoved() async throws {
    let source = MemoryStorageEngine()
    let keys = ["a", "b"].map { CacheKey(verbatim: $0) }
    try await source.write(keys.map { ($0, Data()) })
    let copy = try await EngineCopy(from: source, to: KeepsMany(base: MemoryStorageEngine()))
    await copy.cancel()
    try await source.remove(key: keys[0])
    let error = await #expect(throws: StorageError.self) { try await copy.finish() }
    #expect(error?.code == .corrupted)
  }
}

/// An engine that acknowledges the removal of many entries, and removes none.
private struct KeepsMany: StorageLayer {
  let base: MemoryStorageEngine
  func remove(keys: [CacheKey]) async throws {}
}
