import Foundation
import StockroomCore

/// A correct engine for one process that keeps a log, which is compacted at times, or rewrites everything with each batch. Its
/// faults appear when the machine loses power.
package final class PowerLossFaultEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // With a log
    case neverSyncs, takesTornTailsUnsynced, refusesHoles, skipsHoles, forgetsTheDirectory, forgetsItsParents,
      acknowledgesBeforeTheSync, takesTornTails
    // With a log, in one of the methods
    case forgetsManyWrites, forgetsManyRemovals, forgetsTransactions, forgetsImports
    // With a log that is compacted
    case compactsWithoutChecking, compactsUnsynced, forgetsCompactedNames, removesBeforeRenaming
    // With a new file for each batch
    case renamesBeforeTheSync, forgetsTheRename, overwritesInPlace
  }

  package static func promises(isDurable: Bool) -> EngineCapabilities {
    isDurable
      ? [.persistent, .atomicBatches, .transactions, .durableWrites]
      : [.persistent, .atomicBatches, .transactions]
  }

  struct Entry: Codable, Sendable {
    let key: String
    var data: Data
    let createdAt: Date
    var updatedAt: Date
  }

  private struct State: ~Copyable {
    /// In the order in which the keys were first written.
    var entries: [Entry]
    var files: PowerLossFaultFiles?
  }

  package let capabilities: EngineCapabilities
  private let state: MutexProtected<State>
  private let fault: Fault?

  package init(directory: URL, keepsLog: Bool, isDurable: Bool = true, fault: Fault?) throws {
    capabilities = Self.promises(isDurable: isDurable)
    self.fault = fault
    var files = try PowerLossFaultFiles(in: directory, keepsLog: keepsLog, fault: fault)
    var entries: [Entry] = []
    for change in try files.read() { change.apply(to: &entries) }
    state = MutexProtected(State(entries: entries, files: files))
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    try commit(operations)
  }

  package func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try commit(dataAndKeys.map { .write($0.data, key: $0.key) }, unless: .forgetsManyWrites)
  }

  package func writeEntries(_ entries: [StorageEntry]) async throws {
    try commit(entries.map { .write($0.data, key: $0.key) }, unless: .forgetsImports)
  }

  package func remove(keys: [CacheKey]) async throws {
    try commit(keys.map { .remove(key: $0) }, unless: .forgetsManyRemovals)
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try state.withLock { state in
      let values = state.entries.map { (CacheKey(verbatim: $0.key), $0.data) }
      let transaction = CopyTransaction(Dictionary(values) { first, _ in first })
      defer { transaction.end() }
      let result = try body(transaction)
      try commit(transaction.end(), &state, isSynced: fault != .forgetsTransactions)
      return result
    }
  }

  private func commit(_ operations: [StorageOperation], unless forgetting: Fault? = nil) throws {
    try operations.validate()
    let isSynced = forgetting == nil || fault != forgetting
    try state.withLock { try commit(operations, &$0, isSynced: isSynced) }
  }

  private func commit(_ operations: [StorageOperation], _ state: inout State, isSynced: Bool) throws {
    guard state.files != nil else { throw StorageError(.closed, "The engine has been closed.") }
    let change = PowerLossFaultChange(time: Date(), operations)
    var entries = state.entries
    change.apply(to: &entries)
    try state.files?.save(change, entries, isSynced: isSynced)
    state.entries = entries
  }

  package func read(key: CacheKey) async throws -> Data? { try entry(key)?.data }
  package func createdAt(key: CacheKey) async throws -> Date? { try entry(key)?.createdAt }
  package func updatedAt(key: CacheKey) async throws -> Date? { try entry(key)?.updatedAt }
  package func allKeys() async throws -> [CacheKey] { try entries().map { CacheKey(verbatim: $0.key) } }

  package func readAllEntries() async throws -> [StorageEntry] {
    try entries().map {
      StorageEntry(
        key: CacheKey(verbatim: $0.key), data: $0.data, createdAt: $0.createdAt, updatedAt: $0.updatedAt)
    }
  }

  package func close() async throws { state.withLock { $0.files = nil } }

  private func entry(_ key: CacheKey) throws -> Entry? {
    try key.validate()
    return try entries().first { CacheKey(verbatim: $0.key) == key }
  }

  private func entries() throws -> [Entry] {
    try state.withLock { state in
      guard state.files != nil else { throw StorageError(.closed, "The engine has been closed.") }
      return state.entries
    }
  }
}

/// A batch, or all entries.
struct PowerLossFaultChange: Codable, Sendable {
  /// Nil key: everything is removed. Nil value: the key is removed.
  struct Operation: Codable, Sendable {
    var key: String?
    var data: Data?
    /// The time at which the entry was created, if all entries are rewritten.
    var createdAt: Date?
    var updatedAt: Date
  }

  var operations: [Operation]

  init(time: Date, _ operations: [StorageOperation]) {
    self.operations = operations.map { operation in
      switch operation {
      case .removeAll: Operation(updatedAt: time)
      case .remove(let key): Operation(key: key.value, updatedAt: time)
      case .write(let data, let key): Operation(key: key.value, data: data, updatedAt: time)
      }
    }
  }

  init(_ entries: [PowerLossFaultEngine.Entry]) {
    operations = entries.map {
      Operation(key: $0.key, data: $0.data, createdAt: $0.createdAt, updatedAt: $0.updatedAt)
    }
  }

  init(_ operations: [Operation]) { self.operations = operations }

  func apply(to entries: inout [PowerLossFaultEngine.Entry]) {
    for operation in operations {
      guard let key = operation.key else {
        entries = []
        continue
      }
      let index = entries.firstIndex { CacheKey(verbatim: $0.key) == CacheKey(verbatim: key) }
      switch (operation.data, index) {
      case (nil, nil): break
      case (nil, let index?): entries.remove(at: index)
      case (let data?, let index?):
        entries[index].data = data
        entries[index].updatedAt = max(entries[index].updatedAt, operation.updatedAt)
      case (let data?, nil):
        entries.append(
          .init(
            key: key, data: data, createdAt: operation.createdAt ?? operation.updatedAt,
            updatedAt: operation.updatedAt))
      }
    }
  }
}
