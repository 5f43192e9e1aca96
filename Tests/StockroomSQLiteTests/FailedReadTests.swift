import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite struct FailedReadTests {
  struct FaultOfBody: Error {}

  /// Opens an engine and writes more than SQLite caches.
  private func open(_ place: TestPlace) async throws -> SQLiteStorageEngine {
    try #require(FaultyFiles.areInstalled)
    let engine = try SQLiteStorageEngine(directory: place.directory, cacheSize: 0)
    try await engine.write((0..<500).map { (CacheKey(verbatim: "cold-\($0)"), Data(count: 2_000)) })
    return engine
  }

  @Test("A transaction that fails to read does not fail other transactions of its commit")
  func group() async throws {
    let place = try TestPlace()
    let engine = try await open(place)
    let directory = try place.directory.resolvedPath
    let counter = CacheKey(verbatim: "counter")
    for round in 1...20 {
      // The first body blocks the committing thread until the others are queued.
      let (beginning, mayEnd) = (AsyncStream<Void>.makeStream(), DispatchSemaphore(value: 0))
      let first = Task {
        try await engine.withTransaction { _ in
          beginning.continuation.finish()
          mayEnd.wait()
        }
      }
      for await _ in beginning.stream {}
      let failing = Task {
        try await engine.withTransaction { transaction in
          try FaultyFiles.refusingReads(in: directory) {
            for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
          }
        }
      }
      let counting = (0..<4).map { _ in
        Task {
          try await engine.withTransaction { transaction in
            let before = try transaction.read(key: counter) ?? Data("0".utf8)
            let count = try #require(Int(String(decoding: before, as: UTF8.self)))
            try transaction.write(Data("\(count + 1)".utf8), key: counter)
          }
        }
      }
      for _ in 0..<100 { await Task.yield() }
      mayEnd.signal()
      try await first.value
      let error = await #expect(throws: StorageError.self) { try await failing.value }
      #expect(error?.code == .io)
      for task in counting { try await task.value }
      #expect(try await engine.read(key: counter) == Data("\(round * 4)".utf8))
    }
  }

  @Test("A body that failed to read decides what is thrown, and its later writes are not kept")
  func alone() async throws {
    let place = try TestPlace()
    let engine = try await open(place)
    let directory = try place.directory.resolvedPath
    @Sendable func readAll(_ transaction: any StorageTransaction) throws {
      try FaultyFiles.refusingReads(in: directory) {
        for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
      }
    }
    await #expect(throws: FaultOfBody.self) {
      try await engine.withTransaction { transaction in
        do { try readAll(transaction) } catch { throw FaultOfBody() }
      }
    }
    // Later reads throw, because they would use another snapshot.
    await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        try? readAll(transaction)
        return try transaction.read(key: CacheKey(verbatim: "cold-1"))
      }
    }
    let new = CacheKey(verbatim: "new")
    let error = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        try? readAll(transaction)
        try transaction.write(Data("half".utf8), key: new)
      }
    }
    #expect(error?.code == .io)
    #expect(try await engine.read(key: new) == nil)
    try await engine.write(Data("whole".utf8), key: new)
    #expect(try await engine.read(key: new) == Data("whole".utf8))
  }

  @Test("The body of a read-only engine that failed to read decides what is thrown")
  func readOnly() async throws {
    let place = try TestPlace()
    try await open(place).close()
    let engine = try SQLiteStorageEngine(directory: place.directory, cacheSize: 0, access: .readOnly)
    let directory = try place.directory.resolvedPath
    await #expect(throws: FaultOfBody.self) {
      try await engine.withTransaction { transaction in
        do {
          try FaultyFiles.refusingReads(in: directory) {
            for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
          }
        } catch { throw FaultOfBody() }
      }
    }
  }
}
