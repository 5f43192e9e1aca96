import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// Commits that reached the log but could not be synced (rules W6, F4).
@Suite("SQLite: commits whose sync fails") struct FailedCommitTests {
  /// Copies the files as a crash of the process would leave them.
  private func copyFiles(of place: TestPlace, to copy: TestPlace) throws {
    try FileManager.default.createDirectory(at: copy.url, withIntermediateDirectories: true)
    for (file, second) in [(place.database, copy.database), (place.log, copy.log)] {
      try FileManager.default.copyItem(atPath: file, toPath: second)
    }
  }

  /// Makes a write of key 1 fail after its commit has reached the log, and also the commit that would overwrite it.
  /// Writes to the log fail until the returned fault is ended.
  private func failTwice(_ engine: SQLiteStorageEngine, at place: TestPlace) async throws -> Int {
    let path = try place.directory.resolvedPath
    let failedSyncs = Counter()
    let sync = FaultyFiles.begin(.sync, in: path) { _ in
      failedSyncs.increment()
      return true
    }
    let write = FaultyFiles.begin(.write, in: path) { _ in failedSyncs.count > 0 }
    await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(1)) }
    #expect(failedSyncs.count > 0)
    FaultyFiles.end(sync)
    return write
  }

  @Test("A write that has thrown is not restored by a recovery of the log")
  func recovery() async throws {
    try #require(FaultyFiles.areInstalled)
    let (place, copy) = (try TestPlace(), try TestPlace())
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let fault = FaultyFiles.begin(.sync, in: try place.directory.resolvedPath)
    for batch in [[key(0)], [key(0), key(1)]] {
      await expectError(.io, naming: place.database) {
        try await engine.write(batch.map { ($0, data("new")) })
      }
      #expect(try await engine.read(key: key(0)) == data("old"))
    }
    try copyFiles(of: place, to: copy)
    FaultyFiles.end(fault)
    let recovered = try SQLiteStorageEngine(directory: copy.directory)
    #expect(try await recovered.readAllData() == [data("old")])
    try await recovered.verify()
    try await recovered.close()

    try await engine.write(data("last"), key: key(2))
    #expect(try await engine.allKeys() == [key(0), key(2)])
    try await engine.verify()
    try await engine.close()
  }

  @Test("A removal of an absent key is acknowledged only once no failed write of the key can be recovered")
  func removalAfterTwoFailures() async throws {
    try #require(FaultyFiles.areInstalled)
    let (place, copy) = (try TestPlace(), try TestPlace())
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let write = try await failTwice(engine, at: place)
    await expectError(.io, naming: place.database) { try await engine.remove(key: key(1)) }
    #expect(try await engine.allKeys() == [key(0)])
    FaultyFiles.end(write)
    try await engine.remove(key: key(1))
    try copyFiles(of: place, to: copy)
    let recovered = try SQLiteStorageEngine(directory: copy.directory)
    #expect(try await recovered.allKeys() == [key(0)])
    try await recovered.verify()
    try await recovered.close()
    try await engine.write(data("last"), key: key(2))
    #expect(try await engine.allKeys() == [key(0), key(2)])
    try await engine.close()
  }

  @Test("A removal of an absent key overwrites a failed write of the key by another engine")
  func removalByAnotherEngine() async throws {
    try #require(FaultyFiles.areInstalled)
    let (place, copy) = (try TestPlace(), try TestPlace())
    let engine = try SQLiteStorageEngine(directory: place.directory)
    let other = try SQLiteStorageEngine(directory: place.directory)
    try await other.write(data("old"), key: key(0))
    let write = try await failTwice(engine, at: place)
    await expectError(.io, naming: place.database) { try await other.remove(key: key(1)) }
    FaultyFiles.end(write)
    try await other.remove(key: key(1))
    try copyFiles(of: place, to: copy)
    let recovered = try SQLiteStorageEngine(directory: copy.directory)
    #expect(try await recovered.allKeys() == [key(0)])
    for each in [engine, other, recovered] { try await each.close() }
  }

  @Test("A removal of a key that another engine has removed without a sync waits for the disk")
  func removalAfterUnsyncedRemoval() async throws {
    try #require(FaultyFiles.areInstalled)
    let place = try TestPlace()
    let unsynced = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    let synced = try SQLiteStorageEngine(directory: place.directory)
    try await synced.write([key(0), key(1)].map { ($0, data("old")) })
    try await unsynced.remove(keys: [key(0), key(1)])
    let sync = FaultyFiles.begin(.sync, in: try place.directory.resolvedPath)
    await expectError(.io, naming: place.database) { try await synced.remove(key: key(0)) }
    await expectError(.io, naming: place.database) { try await synced.remove(keys: [key(1), key(2)]) }
    await expectError(.io, naming: place.database) {
      try await synced.withTransaction { try $0.remove(key: key(0)) }
    }
    FaultyFiles.end(sync)
    try await synced.remove(key: key(0))
    #expect(try await synced.keyCount() == 0)
    for each in [unsynced, synced] { try await each.close() }
  }

  @Test("Closing overwrites a failed write in a log that another connection keeps open")
  func closingAfterTwoFailures() async throws {
    try #require(FaultyFiles.areInstalled)
    let (place, copy) = (try TestPlace(), try TestPlace())
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let other = try RawConnection(place.database)
    try other.run("SELECT * FROM entries")
    let write = try await failTwice(engine, at: place)
    FaultyFiles.end(write)
    try await engine.close()
    try copyFiles(of: place, to: copy)
    withExtendedLifetime(other) {}
    let recovered = try SQLiteStorageEngine(directory: copy.directory)
    #expect(try await recovered.allKeys() == [key(0)])
    try await recovered.close()
  }
}
