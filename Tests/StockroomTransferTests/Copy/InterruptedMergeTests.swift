import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import TestFixtures
import Testing

/// Merges into engines that assign their own times, by a clock that is ahead of the source's: by the times alone,
/// everything in the target would be later than the entries of the source.
@Suite("Merges that are interrupted, into targets with times of their own")
struct InterruptedMergeTests {
  /// What ends a merge of four entries, each in a batch of its own.
  enum Interruption: CaseIterable {
    case thirdBatchFails, answerToSecondBatchIsLost, isCancelledAfterSecondBatch
  }

  /// One entry in each batch.
  private static let options = CopyOptions(target: .merge, batchSize: 1)
  private static let marker = CacheKey(verbatim: "stockroom: unfinished merge")

  private let keys = ["a", "b", "c", "d"].map { CacheKey(verbatim: $0) }
  private let source = MemoryStorageEngine()
  private let target = OwnClock()

  /// Merges the source into the target until two more entries are written, after which it has `count` of the keys.
  private func interrupt(by interruption: Interruption, leaving count: Int = 2) async throws {
    let failing = FailingStorageEngine(target)
    let error = StorageError(.io, "A fault of the test.")
    switch interruption {
    case .thirdBatchFails: failing.failCall(3, with: error) { $0.method == .writeEntries }
    case .answerToSecondBatchIsLost:
      failing.failCall(2, with: error, .afterwards) { $0.method == .writeEntries }
    case .isCancelledAfterSecondBatch: break
    }
    let merge = Task {
      try await source.copy(to: failing, options: Self.options) { state in
        guard interruption == .isCancelledAfterSecondBatch, state.phase == .copying else { return }
        if state.entries == 2 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: (any Error).self) { try await merge.value }
    #expect(try await target.allKeys().sorted() == keys.prefix(count) + [Self.marker])
  }

  private func write(_ text: String, _ keys: ArraySlice<CacheKey>, to engine: some StorageEngine) async throws
  {
    try await engine.write(keys.map { ($0, Data(text.utf8)) })
  }

  private func texts() async throws -> [String] {
    try await target.read(keys: keys).map { String(decoding: $0, as: UTF8.self) }
  }

  @Test(
    "What the merge has written is replaced by what the source has by then, and what others have written since stays",
    arguments: Interruption.allCases)
  func mergedAgain(interruption: Interruption) async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: interruption)
    try await write("new", keys[0...2], to: source)
    try await write("theirs", keys[1...2], to: target)
    #expect(try await source.copy(to: target, options: Self.options).written == 2)
    #expect(try await texts() == ["new", "theirs", "theirs", "old"])
    #expect(try await target.allKeys().sorted() == keys)
    // A finished merge leaves no record of the entries that it has written.
    try await write("newer", keys[...], to: source)
    #expect(try await source.copy(to: target, options: Self.options).written == 0)
  }

  @Test("What others have written between two merges that are both interrupted stays")
  func interruptedTwice() async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: .thirdBatchFails)
    try await write("theirs", keys[1...1], to: target)
    try await write("new", keys[0...1], to: source)
    // Writes the first one again, and the third one.
    try await interrupt(by: .thirdBatchFails, leaving: 3)
    #expect(try await texts() == ["new", "theirs", "old"])
    try await write("theirs", keys[2...2], to: target)
    try await write("newer", keys[...], to: source)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["newer", "theirs", "theirs", "newer"])
    #expect(try await target.allKeys().sorted() == keys)
  }

  @Test("What a merge has written is recognized after any number of interruptions")
  func interruptedOften() async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: .isCancelledAfterSecondBatch)
    for _ in 0..<3 {
      let failing = FailingStorageEngine(target)
      failing.failCall { $0.method == .writeEntries }
      await #expect(throws: StorageError.self) { try await source.copy(to: failing, options: Self.options) }
    }
    try await write("new", keys[...], to: source)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["new", "new", "new", "new"])
  }

  @Test(
    "What a merge has written is recognized if the next one ends as soon as it has marked the target, or cannot do that",
    arguments: [FailingStorageEngine.Timing.beforehand, .afterwards])
  func interruptedByMarking(timing: FailingStorageEngine.Timing) async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: .thirdBatchFails)
    try await write("new", keys[...], to: source)
    target.base.failCall(1, timing) { $0.method == .writeEntries }
    await #expect(throws: StorageError.self) { try await source.copy(to: target, options: Self.options) }
    #expect(try await target.allKeys().sorted() == keys.prefix(2) + [Self.marker])
    // This write is not the merge's.
    try await write("theirs", keys[2...2], to: target)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["new", "new", "theirs", "new"])
    #expect(try await target.allKeys().sorted() == keys)
  }

  @Test(
    "What a merge has written in a call that failed is replaced by what the source has by then",
    arguments: [true, false])
  func answerIsLost(isNew: Bool) async throws {
    try await write("old", isNew ? keys[1...] : keys[...], to: source)
    let failing = FailingStorageEngine(target)
    let copy = try await EngineCopy(from: source, to: failing, options: Self.options)
    await copy.cancel()
    try await write("newer", keys[0...0], to: source)
    failing.failCall(1, with: StorageError(.outcomeUnknown, "Lost"), .afterwards) {
      $0.method == .writeEntries
    }
    await #expect(throws: StorageError.self) { try await copy.finish() }
    #expect(try await texts().first == "newer")
    try await write("newest", keys[0...0], to: source)
    try await copy.finish()
    #expect(try await texts() == ["newest", "old", "old", "old"])
    #expect(try await target.allKeys().sorted() == keys)
  }

  @Test("What others have written before a merge that is interrupted stays")
  func writtenBefore() async throws {
    try await write("old", keys[...], to: source)
    try await write("theirs", keys[2...], to: target)
    let failing = FailingStorageEngine(target)
    failing.failCall(2) { $0.method == .writeEntries }
    await #expect(throws: StorageError.self) { try await source.copy(to: failing, options: Self.options) }
    try await write("new", keys[...], to: source)
    try await source.copy(to: target, options: Self.options)
    #expect(try await texts() == ["new", "new", "theirs", "theirs"])
  }

  @Test("A merge that has nothing to write writes nothing, and leaves no entry behind")
  func nothingToWrite() async throws {
    try await write("old", keys[...], to: source)
    try await write("theirs", keys[...], to: target)
    let observed = FailingStorageEngine(target)
    #expect(try await source.copy(to: observed, options: Self.options).written == 0)
    #expect(observed.calls.count { $0.isWrite } == 0)
    #expect(try await target.allKeys().sorted() == keys)
  }

  @Test("A merge that has nothing more to write ends one that was interrupted")
  func nothingMoreToWrite() async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: .thirdBatchFails)
    try await source.remove(keys: Array(keys[2...]))
    #expect(try await source.copy(to: target, options: Self.options).written == 0)
    #expect(try await target.allKeys().sorted() == Array(keys.prefix(2)))
  }

  @Test(
    "A place into which a merge is unfinished is no source and is not dumped; the error names its marker",
    arguments: CopyTarget.allCases)
  func unfinishedSource(policy: CopyTarget) async throws {
    try await write("old", keys[...], to: source)
    try await interrupt(by: .thirdBatchFails)
    let another = MemoryStorageEngine()
    let options = CopyOptions(target: policy)
    let error = await #expect(throws: StorageError.self) {
      try await target.copy(to: another, options: options)
    }
    #expect(error?.code == .unsupported)
    #expect(error?.message.contains("\"\(Self.marker.value)\"") == true)
    #expect(try await another.keyCount() == 0)
    let place = try TemporaryDirectory()
    let refusal = await expectError(.unsupported) { try await target.dump(to: place.appending("archive")) }
    #expect(refusal?.message.contains("\"\(Self.marker.value)\"") == true)
    try await target.remove(key: Self.marker)
    #expect(try await target.copy(to: another, options: options).written == 2)
  }
}

/// An engine that assigns its own times, by a clock that is an hour ahead and advances by a second for each batch.
final class OwnClock: StorageLayer {
  let base = FailingStorageEngine(MemoryStorageEngine())
  private let time = MutexProtected(Date.now + 3_600)

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.preservesTimestamps) }

  func write(_ data: Data, key: CacheKey) async throws { try await write([(key, data)]) }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await write(entries.map { ($0.key, $0.data) })
  }

  func apply(_ operations: [StorageOperation]) async throws {
    for operation in operations {
      switch operation {
      case .write(let data, let key): try await write(data, key: key)
      case .remove(let key): try await base.remove(key: key)
      case .removeAll: try await base.removeAllData()
      }
    }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let now = time.withLock { time in
      time += 1
      return time
    }
    var entries: [StorageEntry] = []
    for (key, data) in dataAndKeys {
      let createdAt = try await base.createdAt(key: key) ?? now
      entries.append(StorageEntry(key: key, data: data, createdAt: createdAt, updatedAt: now))
    }
    try await base.writeEntries(entries)
  }
}
