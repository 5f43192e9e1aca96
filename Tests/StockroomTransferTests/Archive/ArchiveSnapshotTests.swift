import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Archives of engines under load") struct ArchiveSnapshotTests {
  @Test(
    "Every archive of an engine under load is one snapshot",
    arguments: engineNames + ["files+checksummed", "sqlite+compressed"])
  func underLoad(name: String) async throws {
    let place = try TemporaryDirectory()
    try await expectSnapshots(try await open(name, place.url))
  }

  @Test(
    "Every archive of an engine under load is one snapshot if the engine has transactions and no snapshots")
  func transactionsUnderLoad() async throws {
    try await expectSnapshots(EntryByEntryReader(base: MemoryStorageEngine()))
  }

  private func expectSnapshots(_ engine: any StorageEngine) async throws {
    let archives = try TemporaryDirectory()
    try await Accounts.open(in: engine)
    try await Accounts.whileMoving(in: engine) {
      for number in 0..<5 { try await engine.dump(to: archives.appending("\(number)")) }
    }
    #expect(try await Accounts.sum(in: engine) == Accounts.sum)
    for number in 0..<5 {
      let restored = MemoryStorageEngine()
      let summary = try await restored.restore(from: archives.appending("\(number)"))
      #expect(summary.isSnapshot)
      #expect(try await Accounts.sum(in: restored) == Accounts.sum)
    }
    try await engine.close()
  }
}

/// An engine with transactions that reads all entries one by one, at different times.
private struct EntryByEntryReader: StorageLayer {
  let base: MemoryStorageEngine

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.snapshotReads) }

  func readAllEntries() async throws -> [StorageEntry] {
    var entries: [StorageEntry] = []
    for key in try await base.allKeys() {
      entries += try await base.readEntries(keys: [key])
      await Task.yield()
    }
    return entries
  }
}
