import Foundation
import StockroomCore

/// A transaction on a copy of all entries.
package final class CopyTransaction: StorageTransaction {
  private struct State {
    var entries: [CacheKey: Data]
    var operations: [StorageOperation] = []
    var isOver = false
    var hasWrittenEntries = false
    var hasRefused = false
  }

  private let state: MutexProtected<State>
  private let reading: @Sendable (CacheKey, Data?) throws -> Data?

  /// - Parameter reading: Returns the result of a read of a single key for its value.
  package init(
    _ entries: [CacheKey: Data],
    reading: @escaping @Sendable (CacheKey, Data?) throws -> Data? = { _, value in value }
  ) {
    state = MutexProtected(State(entries: entries))
    self.reading = reading
  }

  /// The operations so far.
  package var operations: [StorageOperation] { state.withLock { $0.operations } }

  /// Whether it has imported entries.
  package var hasWrittenEntries: Bool { state.withLock { $0.hasWrittenEntries } }

  /// Whether it has refused a write because of its key.
  package var hasRefused: Bool { state.withLock { $0.hasRefused } }

  /// Ends the transaction. Returns its operations.
  @discardableResult
  package func end() -> [StorageOperation] {
    state.withLock { state in
      state.isOver = true
      return state.operations
    }
  }

  private func perform<Result>(_ body: (inout State) throws -> Result) throws -> Result {
    try state.withLock { state in
      if state.isOver { throw StorageError(.closed, "The transaction is over.") }
      return try body(&state)
    }
  }

  package func read(key: CacheKey) throws -> Data? {
    try key.validate()
    return try reading(key, perform { $0.entries[key] })
  }

  package func read(keys: [CacheKey]) throws -> [Data] {
    try keys.validate()
    return try perform { state in keys.compactMap { state.entries[$0] } }
  }

  package func keyExists(_ key: CacheKey) throws -> Bool { try read(key: key) != nil }

  package func keyCount() throws -> Int { try perform { $0.entries.count } }

  package func allKeys() throws -> [CacheKey] { try perform { Array($0.entries.keys) } }

  package func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try perform { state in
      let found = state.entries.filter { range.contains($0.key) }.sorted { $0.key < $1.key }
      return found.prefix(max(0, limit ?? .max)).map { (key: $0.key, data: $0.value) }
    }
  }

  package func write(_ data: Data, key: CacheKey) throws {
    do {
      try key.validate()
    } catch {
      state.withLock { $0.hasRefused = true }
      throw error
    }
    try perform { state in
      state.entries[key] = Data(data)
      state.operations.append(.write(Data(data), key: key))
    }
  }

  package func writeEntry(_ entry: StorageEntry) throws {
    try write(entry.data, key: entry.key)
    state.withLock { $0.hasWrittenEntries = true }
  }

  package func remove(key: CacheKey) throws {
    try key.validate()
    try perform { state in
      if state.entries.removeValue(forKey: key) != nil { state.operations.append(.remove(key: key)) }
    }
  }

  package func removeAll() throws {
    try perform { state in
      state.entries = [:]
      state.operations.append(.removeAll)
    }
  }
}
