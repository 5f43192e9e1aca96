import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// Transactions of every engine, beyond the checks of the conformance suite (rules T1 to T5).
@Suite struct TransactionTests {
  private func withEngine(_ name: String, _ body: (any StorageEngine) async throws -> Void) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    try await body(engine)
    try await engine.close()
  }

  private static let engines = EngineCatalog.onThisMachine.map(\.name)

  @Test(
    "Data read in a body start at index 0, even after another task wrote a slice (rule V3)",
    arguments: engines)
  func slices(name: String) async throws {
    try await withEngine(name) { engine in
      let key = CacheKey(verbatim: "key")
      try await engine.write(Data(), key: key)
      let slice = Data(0..<100)[10..<20]
      try await withThrowingTaskGroup { group in
        for _ in 0..<100 {
          group.addTask { try await engine.write(slice, key: key) }
          group.addTask {
            let found = try await engine.withTransaction { transaction in
              [try transaction.read(key: key)?.startIndex]
                + (try transaction.scan(.all, limit: nil).map(\.data.startIndex))
            }
            #expect(found == [0, 0])
          }
        }
        try await group.waitForAll()
      }
    }
  }

  @Test(
    "A body reads hundreds of keys in one call, including its own changes, in the order of the request",
    arguments: engines + EngineCatalog.layers.map { "memory+\($0.name)" })
  func bulkReads(name: String) async throws {
    try await withEngine(name) { engine in
      let keys = (0..<300).map { CacheKey(verbatim: "key \($0)") }
      let request = keys.reversed() + [CacheKey(verbatim: "absent")] + keys
      try await engine.write(keys.prefix(250).map { (key: $0, data: Data("old \($0)".utf8)) })
      let after = try await engine.withTransaction { transaction in
        var model = Dictionary(uniqueKeysWithValues: keys.prefix(250).map { ($0, Data("old \($0)".utf8)) })
        for (number, key) in keys.enumerated() where number % 3 != 0 {
          if number % 2 == 0 {
            try transaction.remove(key: key)
            model[key] = nil
          }
          if number % 5 < 3 {
            model[key] = Data("new \(key)".utf8)
            try transaction.write(Data("new \(key)".utf8), key: key)
          }
        }
        let sorted = model.sorted { $0.key < $1.key }
        #expect(try transaction.read(keys: request) == request.compactMap { model[$0] })
        let existing = try request.filter { try transaction.keyExists($0) }
        #expect(existing == request.filter { model[$0] != nil })
        #expect(try transaction.scan(.all, limit: 150).map(\.data) == sorted.prefix(150).map(\.value))
        #expect(try transaction.scan(.all, limit: nil).map(\.key) == sorted.map(\.key))
        #expect(try transaction.read(keys: request) == request.compactMap { model[$0] })
        #expect(try transaction.keyCount() == model.count)
        return model
      }
      let present = request.filter { after[$0] != nil }
      #expect(try await engine.read(keys: request) == present.compactMap { after[$0] })
      #expect(try await engine.keysExist(request) == present)
      #expect(try await engine.readEntries(keys: request) == engine.readAllEntries())
      try await engine.withTransaction { transaction in
        try transaction.removeAll()
        for key in keys.dropFirst(100) { try transaction.write(Data(key.value.utf8), key: key) }
        #expect(try transaction.read(keys: keys) == keys.dropFirst(100).map { Data($0.value.utf8) })
      }
    }
  }

  @Test("Compare-and-swap writes only if the current value is the expected one", arguments: engines)
  func compareAndSwap(name: String) async throws {
    try await withEngine(name) { engine in
      let key = CacheKey(verbatim: "key")
      let (one, two) = (Data("1".utf8), Data("2".utf8))
      #expect(try await !engine.write(one, key: key, ifValue: two))
      #expect(try await engine.write(one, key: key, ifValue: nil))
      #expect(try await !engine.writeIfAbsent(two, key: key))
      #expect(try await !engine.write(two, key: key, ifValue: nil))
      #expect(try await engine.write(two, key: key, ifValue: one))
      #expect(try await engine.read(key: key) == two)
      try await engine.remove(key: key)
      #expect(try await engine.writeIfAbsent(one, key: key))
    }
  }

  @Test(
    "Incrementing a value that is not a number, or beyond the greatest number, throws and changes nothing",
    arguments: engines)
  func increment(name: String) async throws {
    try await withEngine(name) { engine in
      let key = CacheKey(verbatim: "key")
      #expect(try await engine.increment(key, by: .max) == .max)
      await #expect(throws: StorageError.self) { try await engine.increment(key) }
      #expect(try await engine.read(key: key) == Data("\(Int64.max)".utf8))
      #expect(try await engine.increment(key, by: .min) == -1)
      try await engine.write(Data("one".utf8), key: key)
      await #expect(throws: StorageError.self) { try await engine.increment(key) }
      #expect(try await engine.read(key: key) == Data("one".utf8))
    }
  }

  @Test(
    "A transaction on a closed engine throws .closed, and one in progress is completed",
    arguments: engines)
  func closing(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let hasBegun = DispatchSemaphore(value: 0)
    let mayGoOn = DispatchSemaphore(value: 0)
    let transaction = Task {
      try await engine.withTransaction { transaction in
        hasBegun.signal()
        mayGoOn.wait()
        try transaction.write(Data(), key: CacheKey(verbatim: "key"))
        return try transaction.keyCount()
      }
    }
    await wait(for: hasBegun)
    let closing = Task { try await engine.close() }
    mayGoOn.signal()
    #expect(try await transaction.value == 1)
    try await closing.value
    await #expect(throws: StorageError.self) { try await engine.withTransaction { try $0.removeAll() } }
  }
}

/// Waits on a thread that may block.
private func wait(for semaphore: DispatchSemaphore) async {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async {
      semaphore.wait()
      continuation.resume()
    }
  }
}
