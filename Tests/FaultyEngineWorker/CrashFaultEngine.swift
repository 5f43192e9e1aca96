import Foundation
import StockroomCore

/// A correct engine with a log, for one process or for several. Its faults appear when a process is killed, or beside
/// another process.
package final class CrashFaultEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // If the process is killed
    case acknowledgesEarly, acknowledgesTheGroupEarly, notesRemovalsLater, logsEntryByEntry, losesTheOrder
    case logsLargeBatchesInParts, logsLargeRemovalsInParts, acknowledgesImportsEarly,
      acknowledgesImportsOfBodiesEarly, acknowledgesGroupedBatchesEarly
    case makesUpTimes, datesWhatItReplays, rewritesInPlace, refusesTornLines, trapsOnTornLines,
      keepsLongKeysUntilClosed
    // Beside another process
    case hasNoLock, leavesItsLock, locksWithoutName, keepsItsLock, leavesLocksOfCalls, overwritesOthers
    case looksOnlyWhenOpening, runsBodiesUnlocked, unlocksWhenVerifying, unlocksWhenEmptied
    // No fault, and one that does not concern storage
    case prints, trapsWhenOpened
  }

  package let capabilities: EngineCapabilities
  /// The file with the time of the last close or recovery, for a fault.
  private let mark: URL
  private let state: MutexProtected<State>
  private let isShared: Bool
  private let fault: Fault?
  private let transactions = DedicatedThread()

  struct State: ~Copyable {
    var log: CrashFaultLog?
    var entries: [CacheKey: Entry] = [:]
    var sequence = 0
    /// The acknowledged records that are not in the file yet.
    var unwritten: [CrashFaultLog.Record] = []
    var isWriting = false
  }

  struct Entry: Sendable {
    var data: Data
    var createdAt: Date
    var updatedAt: Date
    var sequence: Int
  }

  package static func promises(isShared: Bool) -> EngineCapabilities {
    var promises: EngineCapabilities = [.persistent, .atomicBatches, .snapshotReads, .transactions]
    if isShared { promises.insert(.multiProcess) }
    return promises
  }

  package init(directory: URL, isShared: Bool = false, fault: Fault? = nil) throws {
    (self.isShared, self.fault) = (isShared, fault)
    mark = directory.appending(path: "closed")
    capabilities = Self.promises(isShared: isShared)
    if fault == .prints { print("The engine is being opened.") }
    if fault == .trapsWhenOpened {
      FileHandle.standardError.write(Data(repeating: UInt8(ascii: "x"), count: 4 << 20))
      fatalError("These are the last words.")
    }
    var state = State()
    state.log = try CrashFaultLog(in: directory, isShared: isShared, fault: fault)
    self.state = MutexProtected(state)
    if fault == .datesWhatItReplays {
      try self.state.withLock { state in
        try state.log?.lock()
        defer { state.log?.unlock() }
        try recover(&state)
      }
    }
    try perform { state in
      if fault == .looksOnlyWhenOpening { try state.catchUp(fault) }
      if fault == .losesTheOrder { state.sortByKey() }
      if fault == .rewritesInPlace { try state.rewrite() }
    }
  }

  deinit { transactions.stop() }

  /// Runs the body while it holds the lock of the place.
  private func perform<Result: Sendable>(_ body: (inout State) throws -> Result) throws -> Result {
    try state.withLock { state in
      guard state.log != nil else { throw StorageError(.closed, "The engine has been closed.") }
      try state.log?.lock()
      defer { state.log?.unlock() }
      if fault != .looksOnlyWhenOpening, fault != .overwritesOthers || state.sequence == 0 {
        try state.catchUp(fault)
      }
      return try body(&state)
    }
  }

  package func write(_ data: Data, key: CacheKey) async throws {
    try await applySingle(.write(data, key: key))
  }

  package func remove(key: CacheKey) async throws { try await applySingle(.remove(key: key)) }

  private func applySingle(_ operation: StorageOperation) async throws {
    guard fault == .acknowledgesGroupedBatchesEarly else { return try await apply([operation]) }
    try [operation].validate()
    try applyAlone([operation])
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    if operations.isEmpty { return }
    if fault == .acknowledgesTheGroupEarly || fault == .acknowledgesGroupedBatchesEarly {
      return try await applyInGroups(operations)
    }
    try applyAlone(operations)
  }

  private func applyAlone(_ operations: [StorageOperation]) throws {
    try perform { state in
      for record in records(of: operations, &state) { try state.log?.append(record) }
      if fault == .overwritesOthers { state.apply(CrashFaultLog.Record(operations), at: Date()) }
      if fault == .unlocksWhenEmptied,
        operations.contains(where: { if case .removeAll = $0 { true } else { false } })
      {
        state.log?.loseTheLock()
      }
    }
  }

  package func verify() async throws {
    try perform { state in if fault == .unlocksWhenVerifying { state.log?.loseTheLock() } }
  }

  package func writeEntries(_ entries: [StorageEntry]) async throws {
    let operations = entries.map { StorageOperation.write($0.data, key: $0.key) }
    guard fault == .acknowledgesImportsEarly, !operations.isEmpty else { return try await apply(operations) }
    try operations.validate()
    try perform { $0.unwritten.append(CrashFaultLog.Record(operations)) }
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try await transactions.run { [self] in
      if fault == .runsBodiesUnlocked {
        let transaction = CopyTransaction(try perform { $0.visible.mapValues(\.data) })
        let result = try body(transaction)
        try perform { try commit(transaction.end(), &$0) }
        return result
      }
      return try perform { state in
        let transaction = CopyTransaction(state.visible.mapValues(\.data))
        defer { transaction.end() }
        let result = try body(transaction)
        if fault == .acknowledgesImportsOfBodiesEarly, transaction.hasWrittenEntries {
          state.unwritten.append(CrashFaultLog.Record(transaction.end()))
        } else {
          try commit(transaction.end(), &state)
        }
        return result
      }
    }
  }

  private func commit(_ operations: [StorageOperation], _ state: inout State) throws {
    if operations.isEmpty { return }
    for record in records(of: operations, &state) { try state.log?.append(record) }
    if fault == .overwritesOthers { state.apply(CrashFaultLog.Record(operations), at: Date()) }
  }

  /// The records to write now.
  private func records(of operations: [StorageOperation], _ state: inout State) -> [CrashFaultLog.Record] {
    let record = CrashFaultLog.Record(operations)
    switch fault {
    case .logsEntryByEntry:
      return operations.map { CrashFaultLog.Record([$0]) }
    case .logsLargeBatchesInParts:
      return stride(from: 0, to: operations.count, by: 64).map {
        CrashFaultLog.Record(Array(operations[$0..<min($0 + 64, operations.count)]))
      }
    case .logsLargeRemovalsInParts
    where operations.count > 1_000 && record.changes.allSatisfy { $0.data == nil }:
      return stride(from: 0, to: operations.count, by: 999).map {
        CrashFaultLog.Record(Array(operations[$0..<min($0 + 999, operations.count)]))
      }
    case .acknowledgesEarly:
      defer { state.unwritten = [record] }
      return state.unwritten
    case .notesRemovalsLater where operations.count == 1 && record.changes[0].data == nil:
      state.unwritten.append(record)
      return []
    case .keepsLongKeysUntilClosed where operations.count == 1 && record.hasLongKey:
      state.unwritten.append(record)
      return []
    case .notesRemovalsLater, .acknowledgesImportsEarly, .acknowledgesImportsOfBodiesEarly:
      defer { state.unwritten = [] }
      return state.unwritten + [record]
    default: return [record]
    }
  }

  /// The first of several tasks writes for all of them; the others do not wait for it.
  private func applyInGroups(_ operations: [StorageOperation]) async throws {
    let mustWrite = try perform { state in
      state.unwritten.append(CrashFaultLog.Record(operations))
      defer { state.isWriting = true }
      return !state.isWriting
    }
    guard mustWrite else { return }
    for _ in 0..<20 { await Task.yield() }
    try perform { state in
      for record in state.unwritten { try state.log?.append(record) }
      (state.unwritten, state.isWriting) = ([], false)
    }
  }

  package func close() async throws {
    try state.withLock { state in
      guard state.log != nil else { return }
      for record in state.unwritten { try state.log?.append(record) }
      if fault == .datesWhatItReplays { try noteTime() }
      state.log = nil
    }
  }

  private func noteTime() throws {
    try Data("\(Date().timeIntervalSinceReferenceDate)".utf8).write(to: mark)
  }

  /// Replays the writes since the last close as if they were made now, and writes their new times to the log.
  private func recover(_ state: inout State) throws {
    let text = try? String(contentsOf: mark, encoding: .utf8)
    let closed = Date(timeIntervalSinceReferenceDate: text.flatMap(Double.init) ?? 0)
    let records = (try state.log?.newRecords() ?? []).map { record in
      CrashFaultLog.Record(date: record.date <= closed ? record.date : Date(), changes: record.changes)
    }
    try state.log?.clear()
    for record in records { try state.log?.append(record) }
    try noteTime()
  }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try perform { $0.visible[key]?.data }
  }

  package func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    let wanted = Set(keys)
    let found = try perform { $0.visible.filter { wanted.contains($0.key) }.mapValues(\.data) }
    return keys.compactMap { key in found[key].map { (key, $0) } }
  }

  package func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  package func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try perform { $0.visible.map { ($0.key, $0.value.data) } }
  }

  package func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  package func allKeys() async throws -> [CacheKey] { try perform { Array($0.visible.keys) } }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { $0.visible[key]?.createdAt }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { $0.visible[key]?.updatedAt }
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    try perform { state in
      state.visible.sorted { $0.value.sequence < $1.value.sequence }.map {
        StorageEntry(
          key: $0.key, data: $0.value.data, createdAt: $0.value.createdAt, updatedAt: $0.value.updatedAt)
      }
    }
  }
}

extension CrashFaultEngine.State {
  /// The entries, including acknowledged ones that are not in the file yet.
  var visible: [CacheKey: CrashFaultEngine.Entry] {
    if unwritten.isEmpty { return entries }
    var copy = CrashFaultEngine.State()
    (copy.entries, copy.sequence) = (entries, sequence)
    for record in unwritten { copy.apply(record, at: record.date) }
    return copy.entries
  }

  /// Reads the records that were added to the file since the last call.
  mutating func catchUp(_ fault: CrashFaultEngine.Fault?) throws {
    for record in try log?.newRecords() ?? [] {
      apply(record, at: fault == .makesUpTimes ? Date() : record.date)
    }
  }

  mutating func apply(_ record: CrashFaultLog.Record, at now: Date) {
    for change in record.changes {
      guard let name = change.key else {
        entries = [:]
        continue
      }
      let key = CacheKey(verbatim: name)
      guard let data = change.data else {
        entries[key] = nil
        continue
      }
      sequence += 1
      let old = entries[key]
      entries[key] = CrashFaultEngine.Entry(
        data: data, createdAt: old?.createdAt ?? now, updatedAt: max(old?.updatedAt ?? now, now),
        sequence: old?.sequence ?? sequence)
    }
  }

  mutating func sortByKey() {
    for (rank, key) in entries.keys.sorted().enumerated() { entries[key]?.sequence = rank }
    sequence += entries.count
  }

  /// Compacts the file.
  mutating func rewrite() throws {
    let inOrder = entries.sorted { $0.value.sequence < $1.value.sequence }
    let records = inOrder.map { key, entry in
      CrashFaultLog.Record(
        date: entry.createdAt, changes: [.init(key: key.value, data: entry.data)])
    }
    try log?.clear()
    for record in records { try log?.append(record) }
  }
}
