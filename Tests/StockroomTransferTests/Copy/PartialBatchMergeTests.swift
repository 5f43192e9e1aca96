import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import Testing

/// The target's clock is ahead of the source's: by the times alone, everything in the target would be later than the
/// entries of the source.
@Suite("Merges that are interrupted within a batch, into targets that write one entry after another")
struct PartialBatchMergeTests {
  private static let options = CopyOptions(target: .merge)
  private static let marker = CacheKey(verbatim: "stockroom: unfinished merge")

  private let keys = ["a", "b", "c", "d"].map { CacheKey(verbatim: $0) }
  private let source = MemoryStorageEngine()
  private let target = OneByOne()

  /// Merges the source into the target until the entry of a key is to be written.
  private func interrupt(before key: CacheKey, _ options: CopyOptions = PartialBatchMergeTests.options)
    async throws
  {
    let engine = target.base.base
    engine.failCall { $0.method == .writeEntries && $0.keys == [key] }
    await #expect(throws: StorageError.self) { try await source.copy(to: target, options: options) }
    #expect(try await target.keyExists(Self.marker))
  }

  private func write(_ text: String, _ keys: ArraySlice<CacheKey>, to engine: some StorageEngine) async throws
  {
    try await engine.write(keys.map { ($0, Data(text.utf8)) })
  }

  private func texts() async throws -> [String] {
    try await target.read(keys: keys).map { String(decoding: $0, as: UTF8.self) }
  }

  @Test(
    "What is left of a batch is replaced by what the source has by then, and what others have written since stays",
    arguments: [1, 4 << 20])
  func mergedAgain(batchSize: Int) async throws {
    let options = CopyOptions(target: .merge, batchSize: batchSize)
    try await write("old", keys[...], to: source)
    try await interrupt(before: keys[2], options)
    try await write("theirs", keys[1...2], to: target)
    try await write("new", keys[...], to: source)
    #expect(try await source.copy(to: target, options: options).written == 2)
    #expect(try await texts() == ["new", "theirs", "theirs", "new"])
    #expect(try await target.allKeys().sorted() == keys)
    // A finished merge leaves no record of the entries that it has written.
    try await write("newer", keys[...], to: source)
    #expect(try await source.copy(to: target, options: options).written == 0)
  }

  @Test("What is left of a batch is recognized after any number of interruptions")
  func interruptedOften() async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(before: keys[2])
    try await interrupt(before: keys[2])
    // Not even the marker can be written.
    try await interrupt(before: Self.marker)
    try await write("new", keys[...], to: source)
    try await interrupt(before: keys[1])
    try await write("newest", keys[...], to: source)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["newest", "newest", "newest", "newest"])
    #expect(try await target.allKeys().sorted() == keys)
  }

  @Test("What others have written before a merge that is interrupted stays, and is no part of the batch")
  func writtenBefore() async throws {
    try await write("old", keys[...], to: source)
    try await write("theirs", keys[1...1], to: target)
    try await interrupt(before: keys[2])
    try await write("new", keys[...], to: source)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["new", "theirs", "new", "new"])
  }
}

/// An engine that assigns its own times, and writes the entries of a batch one after another.
private struct OneByOne: StorageLayer {
  let base = OwnClock()

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.atomicBatches) }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, data) in dataAndKeys { try await base.write(data, key: key) }
  }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await write(entries.map { ($0.key, $0.data) })
  }
}
