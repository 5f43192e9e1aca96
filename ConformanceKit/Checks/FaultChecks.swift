#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Read-only media, and exhausted file descriptors: rules F3 and R4.

extension CheckDefinition {
  @CheckList static var faultChecks: [CheckDefinition] {
    Check(
      .r4, "faults.no-descriptors-while-open",
      "without free file descriptors, every read returns the right result or throws the cause, so does "
        + "changes(), nothing is lost, and everything works again later", needs: .persistent,
      needsWorker: true
    ) { try await $0.checkWithoutDescriptors(.using) }
    Check(
      .f3, "faults.read-only-store",
      "on read-only media, a store can be read or throws readOnly or permissionDenied when it is opened, and "
        + "every write throws one of them", needs: .persistent
    ) { context in
      let disk = try await context.smallDiskForEngine()
      let store = try await ClosedStore(in: context, at: disk.directory.appending(path: "store"))
      try disk.makeReadOnly()
      try await checkReadOnly(store)
    }
    Check(
      .f3, "faults.read-only-directory",
      "creating a store on read-only media throws readOnly or permissionDenied",
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
