import FaultyEngineWorker
import Foundation
import StockroomCore

/// An engine whose faults are its differences from a correct one: ``base`` performs every call that it does not
/// implement, except `writeEntries(_:)`, which calls its `write(_:)`.
protocol FaultyEngine: StorageEngine {
  associatedtype Base: StorageEngine
  var base: Base { get }
}

extension FaultyEngine {
  var capabilities: EngineCapabilities { base.capabilities }
  func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws { try await base.write(dataAndKeys) }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys) }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await base.readDataAndKeys(keys: keys)
  }
  func readAllData() async throws -> [Data] { try await base.readAllData() }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await base.readAllDataAndKeys()
  }
  func remove(key: CacheKey) async throws { try await base.remove(key: key) }
  func remove(keys: [CacheKey]) async throws { try await base.remove(keys: keys) }
  func removeAllData() async throws { try await base.removeAllData() }
  func keyExists(_ key: CacheKey) async throws -> Bool { try await base.keyExists(key) }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(keys) }
  func keyCount() async throws -> Int { try await base.keyCount() }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
  func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries() }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] { try await base.readEntries(keys: keys) }
  func apply(_ operations: [StorageOperation]) async throws { try await base.apply(operations) }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit)
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result { try await base.withTransaction(body) }
  func changes() async throws -> StorageChanges { try await base.changes() }
  func verify() async throws { try await base.verify() }
  func close() async throws { try await base.close() }
}

extension FaultyEngine {
  /// Runs a body on a copy of all entries while others can write. Returns its operations and its result.
  func runOnCopy<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> (result: Result, operations: [StorageOperation]) {
    try await run(body, on: try await values())
  }

  private func values() async throws -> [CacheKey: Data] {
    Dictionary(uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
  }

  /// Runs a body on a copy of these entries while others can write. Returns its operations and its result.
  private func run<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result, on entries: [CacheKey: Data]
  ) async throws -> (result: Result, operations: [StorageOperation]) {
    let thread = DedicatedThread()
    defer { thread.stop() }
    return try await thread.run {
      let copy = CopyTransaction(entries)
      // Even if the body throws.
      defer { copy.end() }
      return (try body(copy), copy.end())
    }
  }

  /// Runs a body on a copy while others write, and again if they have written, until it can be committed.
  func runOnCopyUntilAlone<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> (result: Result, operations: [StorageOperation], before: [StorageEntry]) {
    while true {
      let before = try await base.readAllEntries()
      let (result, operations) = try await runOnCopy(body)
      guard try await base.readAllEntries() == before else { continue }
      try await base.apply(operations)
      return (result, operations, before)
    }
  }

  /// Runs a body on a copy while others write, and again until it may be committed.
  ///
  /// - Parameters:
  ///   - copied: Receives the entries, and returns those that the body gets a copy of.
  ///   - body: Returns its result, and what it has noted.
  ///   - mayCommit: Receives what the body has noted, its operations, and the entries before it and now. The commit
  ///     follows as one step with it.
  func runOnCopy<Result: Sendable, Notes: Sendable>(
    of copied: ([CacheKey: Data]) -> [CacheKey: Data] = { $0 },
    _ body: @escaping @Sendable (any StorageTransaction) throws -> (Result, Notes),
    until mayCommit:
      @escaping @Sendable (Notes, [StorageOperation], _ before: [CacheKey: Data], _ now: [CacheKey: Data]) ->
      Bool
  ) async throws -> Result {
    while true {
      let before = copied(try await values())
      let (outcome, operations) = try await run(body, on: before)
      let (result, notes) = outcome
      if operations.isEmpty { return result }
      let isDone = try await base.withTransaction { transaction in
        let now = Dictionary(
          uniqueKeysWithValues: try transaction.scan(.all, limit: nil).map { ($0.key, $0.data) })
        guard mayCommit(notes, operations, before, now) else { return false }
        try transaction.apply(operations)
        return true
      }
      if isDone { return result }
    }
  }

  /// Runs a body. If `isLost` returns true at its end, reverts its changes but returns its result.
  func withTransaction<Result: Sendable>(
    lostIf isLost: @escaping @Sendable () -> Bool,
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let results = MutexProtected<[Result]>([])
    do {
      return try await base.withTransaction { transaction in
        let result = try body(transaction)
        guard isLost() else { return result }
        results.withLock { $0.append(result) }
        throw LostTransaction()
      }
    } catch let error as LostTransaction {
      guard let result = results.withLock({ $0.last }) else { throw error }
      return result
    }
  }
}

private struct LostTransaction: Error {}

extension StorageChanges {
  /// A stream with the same elements, for a subscriber with the current origin.
  func passedOn(onTermination end: @escaping @Sendable () -> Void = {}) -> StorageChanges {
    let (changes, continuation) = Self.makeStream(leavingOut: ChangeOrigin.current)
    let task = Task {
      for await change in self { continuation.send(change) }
      continuation.finish()
    }
    continuation.onTermination {
      task.cancel()
      end()
    }
    return changes
  }
}

/// An engine that confuses keys: it uses the result of `rename` instead of each key.
struct RenamingEngine: FaultyEngine {
  let base: ReferenceEngine
  /// Measures the length of a key. Lengths from 1 to 511 are accepted.
  var length: @Sendable (String) -> Int = { $0.utf8.count }
  let rename: @Sendable (String) -> String

  private func renamed(_ key: CacheKey) throws -> CacheKey {
    guard (1...511).contains(length(key.value)) else {
      throw StorageError(.invalidKey, "The key is empty or too long.")
    }
    let name = rename(key.value)
    return CacheKey(verbatim: name.isEmpty ? "empty" : name)
  }

  func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: renamed(key)) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys.map { (try renamed($0.key), $0.data) })
  }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: renamed(key)) }
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys.map(renamed)) }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await base.readDataAndKeys(keys: keys.map(renamed))
  }
  func remove(key: CacheKey) async throws { try await base.remove(key: renamed(key)) }
  func remove(keys: [CacheKey]) async throws { try await base.remove(keys: keys.map(renamed)) }
  func keyExists(_ key: CacheKey) async throws -> Bool { try await base.keyExists(renamed(key)) }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    var existing: [CacheKey] = []
    for key in keys where try await keyExists(key) { existing.append(key) }
    return existing
  }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: renamed(key)) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: renamed(key)) }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(
      operations.map { operation in
        switch operation {
        case .write(let data, let key): .write(data, key: try renamed(key))
        case .remove(let key): .remove(key: try renamed(key))
        case .removeAll: .removeAll
        }
      })
  }
}

/// An engine that changes values when they are written or read.
struct ChangingEngine: FaultyEngine {
  let base: ReferenceEngine
  var onTheWayIn: @Sendable (Data) -> Data = { $0 }
  var onTheWayOut: @Sendable (Data) -> Data = { $0 }

  func write(_ data: Data, key: CacheKey) async throws { try await base.write(onTheWayIn(data), key: key) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys.map { ($0.key, onTheWayIn($0.data)) })
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(
      operations.map { operation in
        if case .write(let data, let key) = operation {
          .write(onTheWayIn(data), key: key)
        } else {
          operation
        }
      })
  }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key).map(onTheWayOut) }
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys).map(onTheWayOut) }
}

/// An engine that wraps every call except `writeEntries(_:)`, `changes()`, `verify()` and `close()`.
protocol InterceptingEngine: FaultyEngine {
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result
}

extension InterceptingEngine {
  func write(_ data: Data, key: CacheKey) async throws {
    try await call(isChange: true) { [base] in try await base.write(data, key: key) }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await call(isChange: true) { [base] in try await base.write(dataAndKeys) }
  }
  func read(key: CacheKey) async throws -> Data? {
    try await call(isChange: false) { [base] in try await base.read(key: key) }
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    try await call(isChange: false) { [base] in try await base.read(keys: keys) }
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await call(isChange: false) { [base] in try await base.readDataAndKeys(keys: keys) }
  }
  func readAllData() async throws -> [Data] {
    try await call(isChange: false) { [base] in try await base.readAllData() }
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await call(isChange: false) { [base] in try await base.readAllDataAndKeys() }
  }
  func remove(key: CacheKey) async throws {
    try await call(isChange: true) { [base] in try await base.remove(key: key) }
  }
  func remove(keys: [CacheKey]) async throws {
    try await call(isChange: true) { [base] in try await base.remove(keys: keys) }
  }
  func removeAllData() async throws {
    try await call(isChange: true) { [base] in try await base.removeAllData() }
  }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    try await call(isChange: false) { [base] in try await base.keyExists(key) }
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await call(isChange: false) { [base] in try await base.keysExist(keys) }
  }
  func keyCount() async throws -> Int {
    try await call(isChange: false) { [base] in try await base.keyCount() }
  }
  func allKeys() async throws -> [CacheKey] {
    try await call(isChange: false) { [base] in try await base.allKeys() }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await call(isChange: false) { [base] in try await base.createdAt(key: key) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await call(isChange: false) { [base] in try await base.updatedAt(key: key) }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    try await call(isChange: false) { [base] in try await base.readAllEntries() }
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await call(isChange: false) { [base] in try await base.readEntries(keys: keys) }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await call(isChange: true) { [base] in try await base.apply(operations) }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await call(isChange: false) { [base] in try await base.scan(range, limit: limit) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await call(isChange: true) { [base] in try await base.withTransaction(body) }
  }
}

/// A faulty engine that turns every change except removeAllData() and transactions into a batch.
protocol FaultyBatchEngine: FaultyEngine {
  func apply(_ operations: [StorageOperation]) async throws
}

extension FaultyBatchEngine {
  func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }
  func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }
  func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }
}
