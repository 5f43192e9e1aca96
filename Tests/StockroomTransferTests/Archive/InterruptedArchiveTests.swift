import Foundation
import StockroomCore
import StockroomMemory
import StockroomTestSupport
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Dumps and restores that are cancelled in progress") struct InterruptedArchiveTests {
  @Test(
    "A dump that is cancelled in progress leaves no file, and the archive that it would have replaced",
    arguments: engineNames, [true, false])
  func dump(name: String, isReplacing: Bool) async throws {
    let (place, archives) = (try TemporaryDirectory(), try TemporaryDirectory())
    let archive = archives.appending("archive")
    let engine = try await open(name, place.url)
    try await engine.write(Data("1".utf8), key: key("1"))
    if isReplacing { try await engine.dump(to: archive) }
    let before = try isReplacing ? Data(contentsOf: archive) : nil
    // More than one block.
    try await engine.write(Data(count: 2 << 20), key: key("2"))
    let gate = ThreadGate()
    let dump = Task {
      defer { gate.finish() }
      return try await engine.dump(to: archive, replacing: isReplacing) { _ in gate.wait() }
    }
    await gate.waitForArrivals(1)
    #expect(try names(in: archives.url).count { $0.contains(".partial-") } == 1)
    dump.cancel()
    gate.open()
    await #expect(throws: CancellationError.self) { try await dump.value }
    #expect(try names(in: archives.url) == (isReplacing ? ["archive"] : []))
    if isReplacing { #expect(try Data(contentsOf: archive) == before) }
    // Another dump succeeds.
    #expect(try await engine.dump(to: archive, replacing: isReplacing).entryCount == 2)
    try await engine.close()
  }

  /// When a restore of two batches is cancelled.
  enum Timing: CaseIterable { case betweenBatches, duringSecondBatch }

  @Test("A restore that is cancelled in progress leaves the engine empty", arguments: Timing.allCases)
  func restore(timing: Timing) async throws {
    let place = try TemporaryDirectory()
    let archive = place.beside("archive")
    let summary = try await makeArchiveOfTwoBatches(at: archive)
    let engine = MemoryStorageEngine()
    try await restore(archive, to: engine, merging: false, cancelledAt: timing)
    #expect(try await engine.keyCount() == 0)
    #expect(try await engine.restore(from: archive) == summary)
    #expect(try await engine.keyCount() == 2)
  }

  @Test(
    "A merging restore that is cancelled in progress keeps the batches before, and is completed by another one",
    arguments: Timing.allCases)
  func mergingRestore(timing: Timing) async throws {
    let place = try TemporaryDirectory()
    let archive = place.beside("archive")
    try await makeArchiveOfTwoBatches(at: archive)
    let engine = MemoryStorageEngine()
    try await engine.write(Data("mine".utf8), key: key("mine"))
    try await restore(archive, to: engine, merging: true, cancelledAt: timing)
    #expect(try await engine.allKeys().sorted() == [key("first"), key("mine")])
    try await engine.restore(from: archive, merging: true)
    #expect(try await engine.allKeys().sorted() == [key("first"), key("mine"), key("second")])
    #expect(try await engine.read(key: key("mine")) == Data("mine".utf8))
  }

  @discardableResult private func makeArchiveOfTwoBatches(at archive: URL) async throws -> ArchiveSummary {
    let source = MemoryStorageEngine()
    try await source.write(Data(count: 9 << 20), key: key("first"))
    // Not wholly in the block in which the first one ends.
    try await source.write(Data(count: 2 << 20), key: key("second"))
    return try await source.dump(to: archive)
  }

  private func restore(
    _ archive: URL, to engine: MemoryStorageEngine, merging: Bool, cancelledAt timing: Timing
  ) async throws {
    let held = FailingStorageEngine(engine)
    if timing == .duringSecondBatch {
      held.hold { $0.method == .writeEntries && $0.keys.contains(key("second")) }
    }
    let restore = Task {
      try await held.restore(from: archive, merging: merging) { _ in
        if timing == .betweenBatches { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    if timing == .duringSecondBatch {
      try await held.waitForHeldCalls()
      restore.cancel()
    }
    await #expect(throws: CancellationError.self) { try await restore.value }
    let batches = held.calls.filter { $0.method == .writeEntries }.map(\.keys)
    #expect(batches == [[key("first")]] + (timing == .duringSecondBatch ? [[key("second")]] : []))
  }
}
