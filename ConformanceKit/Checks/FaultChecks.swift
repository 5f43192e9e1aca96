#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A full disk and read-only media: rules F1 and F3.

extension CheckDefinition {
  @CheckList static var faultChecks: [CheckDefinition] {
    Check(
      .f1, "faults.full-disk",
      "on a full disk a write throws diskFull and leaves no trace, what was there can be read, and writing works again "
        + "once there is room", needs: .persistent
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
      "whichever step meets a full disk, it is done or throws diskFull and leaves no trace; what was there can be read, "
        + "and the step can be taken once there is room", needs: .persistent
    ) { context in
      let disk = try context.smallDisk(mebibytes: SmallFileSystem.usualSize)
      try await context.check(
        FullDiskScenario(
          disk: disk.directory, isAtomic: context.capabilities.contains(.atomicBatches),
          hasTransactions: context.capabilities.contains(.transactions)))
    }
    Check(
      .f1, "faults.file-size-limit",
      "a write that meets a limit on the size of files throws diskFull, valueTooLarge or io and leaves no trace, what "
        + "was there can be read, and writing works again without the limit", needs: .persistent,
      needsWorker: true
    ) { context in
      try await context.check(FileSizeLimit(place: context.place), in: context.startWorker())
    }
    Check(
      .r4, "faults.no-descriptors-while-open",
      "when no file descriptors are left, every read gives what is there or throws why it cannot, so does changes(), nothing is "
        + "lost, and everything works again later", needs: .persistent, needsWorker: true
    ) { try await $0.checkWithoutDescriptors(.using) }
    Check(
      .f3, "faults.read-only-store",
      "a store on read-only media can be read, or throws readOnly or permissionDenied when it is opened; so does every "
        + "write", needs: .persistent
    ) { context in
      let disk = try context.smallDisk()
      let store = try await ClosedStore(in: context, at: disk.directory.appending(path: "store"))
      try disk.makeReadOnly()
      try await checkReadOnly(store)
    }
    Check(
      .f3, "faults.read-only-directory",
      "making a store on read-only media throws readOnly or permissionDenied",
      needs: .persistent
    ) { context in
      let disk = try context.smallDisk()
      try disk.makeReadOnly()
      try await expectError(.readOnly, .permissionDenied, from: "opening or writing on read-only media") {
        let engine = try await context.open(
          disk.directory.appending(path: "new", directoryHint: .isDirectory))
        try await engine.write(data("v"), key: key("k"))
      }
    }
  }
}

private let blockSize = 64 << 10
private let diskSize = 16

/// Writes until the disk is full, looks, makes room, and goes on.
private func checkFullDisk(_ context: CheckContext) async throws {
  let disk = try context.smallDisk()
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
  let disk = try context.smallDisk()
  let ballast = BallastFile(on: disk.directory)
  try ballast.take(diskSize << 19)
  let place = disk.directory.appending(path: "store", directoryHint: .isDirectory)
  let kept = entries(keys(10))
  let engine = try await context.openWhereThereIsRoom(place) { try await $0.write(kept) }
  // Far more than there is room for, with the small entries first.
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

/// Writes until that throws `diskFull`. Gives what was acknowledged.
private func fillUp(_ engine: EngineUnderTest) async throws -> [(key: CacheKey, data: Data)] {
  var written: [(key: CacheKey, data: Data)] = []
  for key in keys(3 * diskSize * (1 << 20) / blockSize) {
    let value = noise(blockSize, seed: UInt64(written.count))
    guard try await isAccepted(value, for: key, by: engine) else { return written }
    written.append((key, value))
  }
  throw Skip(reason: "The engine does not fill the disk that it was opened on.")
}

/// Writes a value where there may be no room for it, and returns whether it is there now. An engine that tidies up in the
/// background may find room when it had none a moment before.
private func isAccepted(_ value: Data, for key: CacheKey, by engine: EngineUnderTest) async throws -> Bool {
  do {
    try await engine.write(value, key: key)
    return true
  } catch let failure as CallFailure {
    guard (failure.error as? StorageError)?.code == .diskFull else {
      throw Violation("write(_:key:) on a full disk did not throw diskFull but \(failure.error)")
    }
    return false
  }
}

private func checkReadOnly(_ store: ClosedStore) async throws {
  let engine: EngineUnderTest
  do {
    engine = try await store.context.open(store.directory)
  } catch let failure as CallFailure {
    if let error = failure.error as? StorageError, [.readOnly, .permissionDenied].contains(error.code) {
      return
    }
    throw Violation("opening a store on read-only media threw \(failure.error)")
  }
  try await expectStored(store.entries, in: engine)
  try await expectReads(of: store.entries, in: engine)
  let changes: [(String, @Sendable () async throws -> Void)] = [
    ("write(_:key:)", { try await engine.write(data("v"), key: key("k")) }),
    ("write(_:) of many", { try await engine.write(entries(keys(3))) }),
    ("remove(key:)", { try await engine.remove(key: store.entries[0].key) }),
    ("remove(keys:)", { try await engine.remove(keys: store.entries.map(\.key)) }),
    ("apply(_:)", { try await engine.apply([.removeAll, .write(data("v"), key: key("k"))]) }),
    ("removeAllData()", { try await engine.removeAllData() }),
  ]
  for (method, change) in changes {
    try await expectError(.readOnly, .permissionDenied, from: "\(method) on read-only media") {
      try await change()
    }
    try await expectStored(store.entries, in: engine)
  }
}

/// Fails unless every way of reading works.
private func expectReads(of entries: [(key: CacheKey, data: Data)], in engine: EngineUnderTest) async throws {
  let keys = entries.map(\.key)
  try expect(try await engine.readDataAndKeys(keys: keys), are: entries, "readDataAndKeys(keys:)")
  try expect(try await engine.read(keys: keys), is: entries.map(\.data), "read(keys:)")
  try expect(
    try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }, are: entries, "readAllDataAndKeys()")
  try expect(try await engine.scan(.all, limit: nil), are: entries, "scan(.all)")
  try expect(try await engine.readAllData().count, is: entries.count, "the number of values in readAllData()")
  try expect(try await engine.readAllEntries().count, is: entries.count, "the number of readAllEntries()")
  try expect(
    try await engine.readEntries(keys: keys).count, is: entries.count, "the number of readEntries(keys:)")
  try expect(try await engine.allKeys().sorted(), is: keys, "allKeys()")
  try expect(try await engine.keyCount(), is: entries.count, "keyCount()")
  try expect(try await engine.keysExist(keys), is: keys, "keysExist(_:)")
  for key in keys.prefix(3) {
    try expect(try await engine.keyExists(key), is: true, "keyExists(_:)")
    let (created, updated) = (try await engine.createdAt(key: key), try await engine.updatedAt(key: key))
    try expect(created != nil && updated != nil, "a timestamp of \(key) was nil")
  }
}

extension CheckContext {
  /// Opens the engine on a disk half of which is free, and writes a little.
  ///
  /// - Throws: ``Skip`` if that is too small for an engine that takes its room in advance.
  fileprivate func openWhereThereIsRoom(
    _ place: URL, write: (EngineUnderTest) async throws -> Void
  ) async throws -> EngineUnderTest {
    do {
      let engine = try await open(place)
      try await write(engine)
      return engine
    } catch let failure as CallFailure where failure.isDiskFull {
      throw Skip(reason: "A disk with \(diskSize / 2) MiB of room is too small for the engine.")
    }
  }

  /// A file system of its own for the check, which is taken away when the check is over.
  fileprivate func smallDisk(mebibytes: Int = diskSize) throws -> SmallFileSystem {
    let directory = root.appending(path: "disk", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let disk = try SmallFileSystem(on: directory, mebibytes: mebibytes)
    addTeardown { disk.unmount() }
    return disk
  }
}
