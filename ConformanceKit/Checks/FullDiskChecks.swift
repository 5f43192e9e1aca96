#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A full disk: rule F1.

extension CheckDefinition {
  @CheckList static var fullDiskChecks: [CheckDefinition] {
    Check(
      .f1, "faults.full-disk",
      "on a full disk, a write throws diskFull and leaves no trace, existing entries can be read, and "
        + "writing works again once there is space", needs: .persistent
    ) { context in
      try await checkFullDisk(context)
    }
    Check(
      .f1, "faults.full-disk-and-batches", "a batch that a full disk cuts short leaves no trace",
      needs: [.persistent, .atomicBatches]
    ) { context in
      try await checkFullDiskWithBatches(context)
    }
    Check(
      .f1, "faults.full-disk-at-every-step",
      "on a full disk, any operation succeeds, or throws diskFull and leaves no trace; existing entries can "
        + "be read, and the operation succeeds once there is space", needs: .persistent
    ) { context in
      let disk = try await context.smallDiskForEngine()
      try await context.check(
        FullDiskScenario(
          disk: disk.directory, isAtomic: context.capabilities.contains(.atomicBatches),
          hasTransactions: context.capabilities.contains(.transactions)))
    }
    Check(
      .f1, "life.on-a-full-disk",
      "while a few entries are overwritten repeatedly on a disk with only a few free blocks, acknowledged "
        + "writes are there, and those that throw diskFull leave no trace", needs: .persistent
    ) { context in
      try await checkLifeOnFullDisk(context)
    }
    Check(
      .f1, "faults.file-size-limit",
      "a write that exceeds the file size limit throws diskFull, valueTooLarge or io and leaves no trace, "
        + "existing entries can be read, and writing works again without the limit", needs: .persistent,
      needsWorker: true
    ) { context in
      try await context.check(FileSizeLimit(place: context.place), in: context.startWorker())
    }
  }
}

private let blockSize = 64 << 10
private let diskSize = 16

/// Writes until the disk is full, checks the contents, frees space, and continues.
private func checkFullDisk(_ context: CheckContext) async throws {
  let disk = try await context.smallDiskForEngine(mebibytes: diskSize)
  let ballast = BallastFile(on: disk.directory)
  try ballast.take(diskSize << 19)
  let place = disk.directory.appending(path: "store", directoryHint: .isDirectory)
  let engine = try await context.openWhereThereIsRoom(place) {
    try await $0.write(data("small"), key: key("overwritten"))
  }
  let written = try await fillUp(engine)

  let (new, overwritten) = (key("new"), key("overwritten"))
  var expected = [overwritten: data("small"), new: nil]
  for _ in 0..<3 {
    for key in [new, overwritten] where try await isAccepted(noise(2 * blockSize), for: key, by: engine) {
      expected[key] = noise(2 * blockSize)
    }
  }
  let stored = written + expected.compactMap { key, value in value.map { (key, $0) } }
  let absent = expected.filter { $0.value == nil }.map(\.key)
  try await expectStored(stored, absent: absent, in: engine)
  let listed = try await engine.allKeys()
  try expect(absent.allSatisfy { !listed.contains($0) }, "allKeys() had a key whose write threw diskFull")

  try ballast.remove()
  try await engine.write(noise(2 * blockSize), key: new)
  try await engine.write(noise(blockSize, seed: 9), key: overwritten)
  let after = written + [(new, noise(2 * blockSize)), (overwritten, noise(blockSize, seed: 9))]
  try await expectStored(after, in: engine)
  try await context.close(engine)
  try await expectStored(after, in: try await context.open(place))
}

private func checkFullDiskWithBatches(_ context: CheckContext) async throws {
  let disk = try await context.smallDiskForEngine(mebibytes: diskSize)
  let ballast = BallastFile(on: disk.directory)
  try ballast.take(diskSize << 19)
  let place = disk.directory.appending(path: "store", directoryHint: .isDirectory)
  let kept = entries(keys(10))
  let engine = try await context.openWhereThereIsRoom(place) { try await $0.write(kept) }
  // Far more than fits, with the small entries first.
  let tooMuch =
    keys(10, prefix: "small-").map { (key: $0, data: data("small")) }
    + keys(diskSize, prefix: "large-").enumerated().map { index, key in
      (key: key, data: incompressible(3 << 19, seed: UInt64(index)))
    }
  for _ in 0..<2 {
    try await expectError(.diskFull, from: "write(_:) of more than fits") { try await engine.write(tooMuch) }
    try await expectStored(kept, absent: tooMuch.map(\.key), in: engine)
    try await expectError(.diskFull, from: "writeEntries(_:) of more than fits") {
      try await wayOfImporting.write(engine, tooMuch)
    }
    try await expectStored(kept, absent: tooMuch.map(\.key), in: engine)
    try await expectError(.diskFull, from: "apply(_:) of more than fits") {
      try await engine.apply([.removeAll] + tooMuch.map { .write($0.data, key: $0.key) })
    }
    try await expectStored(kept, absent: tooMuch.map(\.key), in: engine)
  }
  try ballast.remove()
  try await engine.write(Array(tooMuch.prefix(10)))
  try await expectStored(kept + tooMuch.prefix(10), in: engine)
  try await expectStored(kept + tooMuch.prefix(10), in: try await context.reopen(engine, at: place))
}

/// Overwrites some of a few entries whose total size would never fit twice. Engines that free space by copying the
/// remaining data elsewhere, such as the newest records of a log, have no space for the copy.
private func checkLifeOnFullDisk(_ context: CheckContext) async throws {
  let disk = try await context.smallDiskForEngine()
  let place = disk.directory.appending(path: "store", directoryHint: .isDirectory)
  let keys = keys(40)
  var expected: [CacheKey: Data] = [:]
  for (number, key) in keys.enumerated() { expected[key] = noise(1_000, seed: UInt64(number)) }
  let first = expected.map { (key: $0.key, data: $0.value) }
  let engine = try await context.openWhereThereIsRoom(place) { try await $0.write(first) }
  func look() async throws {
    try await expectStored(expected.map { (key: $0.key, data: $0.value) }, in: engine)
  }
  let ballast = BallastFile(on: disk.directory)
  for round in context.rounds(quick: 60, standard: 300, exhaustive: 3_000, of: "rounds on a full disk") {
    try ballast.fill(leavingBlocks: 6)
    for number in 10 * round..<10 * round + 10 {
      let (key, value) = (keys[number * 7 % 8], noise(1_000, seed: UInt64(1_000 + number)))
      if try await isAccepted(value, for: key, by: engine) { expected[key] = value }
      let found = try await engine.read(key: key)
      try expect(
        found == expected[key],
        "after \(number + 1) overwrites, read(key:) of \(key) was \(describe(found as Any))")
    }
    if round % 10 == 9 { try await look() }
  }
  try await look()
  try ballast.remove()
  expected[keys[0]] = data("after")
  try await engine.write(data("after"), key: keys[0])
  try await look()
  try await expectStored(
    expected.map { (key: $0.key, data: $0.value) }, in: try await context.reopen(engine, at: place))
}

/// Writes until a call throws `diskFull`. Returns the acknowledged entries.
private func fillUp(_ engine: EngineUnderTest) async throws -> [(key: CacheKey, data: Data)] {
  var written: [(key: CacheKey, data: Data)] = []
  for key in keys(3 * diskSize * (1 << 20) / blockSize) {
    let value = noise(blockSize, seed: UInt64(written.count))
    guard try await isAccepted(value, for: key, by: engine) else { return written }
    written.append((key, value))
  }
  throw Skip(reason: "The engine does not fill the disk on which it was opened.")
}

/// Writes a value for which there may be no space, and returns whether it is stored afterwards. An engine that compacts
/// in the background may find space that was missing shortly before.
private func isAccepted(_ value: Data, for key: CacheKey, by engine: EngineUnderTest) async throws -> Bool {
  do {
    try await engine.write(value, key: key)
    return true
  } catch let failure as CallFailure {
    guard (failure.error as? StorageError)?.code == .diskFull else {
      throw Violation("write(_:key:) on a full disk threw \(failure.error) instead of diskFull")
    }
    return false
  }
}

extension CheckContext {
  /// Opens the engine on a disk with 8 MiB of free space, and writes a little.
  ///
  /// - Throws: ``Skip`` if that is too small for an engine that allocates space in advance.
  fileprivate func openWhereThereIsRoom(
    _ place: URL, write: (EngineUnderTest) async throws -> Void
  ) async throws -> EngineUnderTest {
    do {
      let engine = try await open(place)
      try await write(engine)
      return engine
    } catch let failure as CallFailure where failure.isDiskFull {
      throw Skip(reason: "A disk with \(diskSize / 2) MiB of space is too small for the engine.")
    }
  }
}
