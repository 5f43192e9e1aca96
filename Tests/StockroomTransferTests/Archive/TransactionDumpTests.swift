import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Dumps of engines that have transactions and no snapshots") struct TransactionDumpTests {
  @Test("What is written between the reading and the transaction has its times and its place in the archive")
  func changedMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = ChangedOnceRead { engine in
      try await engine.write([(key("z"), Data("new".utf8)), (key("y"), Data("new".utf8))])
      try await engine.write(Data("overwritten".utf8), key: key("b"))
      try await engine.remove(keys: [key("a"), key("c")])
      try await engine.write(Data("again".utf8), key: key("a"))
    }
    for name in ["a", "b", "c", "d"] { try await engine.write(Data(name.utf8), key: key(name)) }
    #expect(try await engine.dump(to: archive).isOneMoment)
    let restored = MemoryStorageEngine()
    try await restored.restore(from: archive)
    let entries = try await restored.readAllEntries()
    #expect(entries.map(\.key) == [key("b"), key("d"), key("z"), key("y"), key("a")])
    #expect(try await engine.base.readAllEntries() == entries)
  }
}

/// An engine that is changed once all entries have been read.
private struct ChangedOnceRead: StorageLayer {
  let base = MemoryStorageEngine()
  let change: @Sendable (MemoryStorageEngine) async throws -> Void

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.snapshotReads) }

  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    try await change(base)
    return entries
  }
}
