import Foundation
import StockroomCore

/// A correct engine for one process with a log, or with a file that it replaces with every write. Its faults appear
/// when a system call fails.
package final class SystemFaultEngine: ApplyingEngine {
  /// A deliberate fault, or an unusual behavior.
  package enum Fault: String, CaseIterable, Sendable {
    // Writes
    case ignoresWriteErrors, acknowledgesInterruptedWrites, acknowledgesShortWrites, repeatsShortWritesWhole
    case continuesShortWritesOnce
    case appliesBeforeWriting, countsRefusedWrites, leavesRefusedRecords, logsEntryByEntry,
      repeatsRefusedWrites
    case evictsWhenFull, truncatesBeforeWriting, logsTransactionsEntryByEntry, appendsBehindTornRecords
    case ignoresErrorsOfLongKeys, ignoresErrorsOfRemovals, removesKeyByKey, importsEntryByEntry
    case datesRefusedWrites
    // Syncs
    case ignoresSyncErrors, repeatsSyncs, repeatsInterruptedSyncs
    // Reads
    case endsAtShortReads, returnsShortValues, emptyAfterReadErrors, emptyAfterOpenErrors, emptyAfterMapErrors
    case emptyAfterAccessErrors
    case nilAfterReadErrors, dropsUnreadable, setsAsideUnreadable, emptyAfterRepeatedReadErrors
    case forgetsUnreadable, skipsUnreadable, skipsUnreadableInBodies, skipsUnreadableAtSecondAttempt
    case absentAfterAccessErrors, undatedAfterAccessErrors, uncountedAfterAccessErrors
    case redatesUnreadable, leaksDescriptorsOfReads
    // Names
    case compactsIgnoringErrors
    case ignoresRewriteErrors, unlinksBeforeRenaming, ignoresRenameErrors, ignoresUnlinkErrors,
      ignoresTruncateErrors
    // Errors
    case trapsOnErrors, hangsWhenInterrupted, leaksDescriptors, leaksLocks, throwsForeignErrors
    case callsErrorsClosed, staysCorrupted, staysReadOnly
    // No faults
    case breaksAtOnce, namesCompleteLogs, compacts
  }

  package static let promises: EngineCapabilities = [
    .persistent, .atomicBatches, .durableWrites, .transactions,
  ]

  package let capabilities = promises
  private let state: MutexProtected<State>
  private let keepsLog: Bool
  private let fault: Fault?

  /// The location of a key's value: the record, and the index of the change in it.
  struct Entry: Sendable {
    var offset: Int
    var count: Int
    var change: Int
    var createdAt: Date
    var updatedAt: Date
    var sequence: Int
  }

  struct State: ~Copyable {
    var file: SystemFaultFile?
    var entries: [String: Entry] = [:]
    var sequence = 0
    var surplus = 0
    var refused: [CrashFaultLog.Record] = []
  }

  package init(directory: URL, keepsLog: Bool = true, fault: Fault? = nil) throws {
    (self.keepsLog, self.fault) = (keepsLog, fault)
    var state = State()
    let beginning = State.encode(CrashFaultLog.Record([]))
    state.file = try SystemFaultFile(in: directory, beginning: beginning, fault: fault)
    try state.load(mayBeEmpty: fault != .namesCompleteLogs)
    self.state = MutexProtected(state)
  }

  func perform<Result: Sendable>(_ body: (inout State) throws -> Result) throws -> Result {
    try state.withLock { state in
      guard state.file != nil else { throw StorageError(.closed, "The engine has been closed.") }
      return try body(&state)
    }
  }

  package func removeAllData() async throws {
    try perform { state in
      guard keepsLog, fault == .ignoresUnlinkErrors || fault == .ignoresTruncateErrors else {
        return try commit([.removeAll], &state)
      }
      if fault == .ignoresUnlinkErrors {
        try state.file?.startAgain()
      } else {
        try state.file?.truncate(to: 0)
      }
      state.entries = [:]
    }
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    if operations.isEmpty { return }
    try perform { state in
      let isParted =
        fault == .logsEntryByEntry || fault == .removesKeyByKey && operations.allSatisfy(\.isRemoval)
      guard isParted else { return try commit(operations, &state) }
      for operation in operations { try commit([operation], &state) }
    }
  }

  package func writeEntries(_ entries: [StorageEntry]) async throws {
    let operations = entries.map { StorageOperation.write($0.data, key: $0.key) }
    guard fault == .importsEntryByEntry else { return try await apply(operations) }
    for operation in operations { try await apply([operation]) }
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try perform { state in
      let transaction = CopyTransaction(try state.values(skipping: fault == .skipsUnreadableInBodies))
      defer { transaction.end() }
      let result = try body(transaction)
      let operations = transaction.end()
      if fault == .logsTransactionsEntryByEntry {
        for operation in operations { try commit([operation], &state) }
      } else if !operations.isEmpty {
        try commit(operations, &state)
      }
      return result
    }
  }

  private func commit(_ operations: [StorageOperation], _ state: inout State) throws {
    let record = CrashFaultLog.Record(operations)
    if fault == .repeatsRefusedWrites {
      for record in state.refused { try state.append(record) }
      state.refused = []
    }
    if fault == .countsRefusedWrites { state.surplus += 1 }
    if fault == .redatesUnreadable { state.forgetUnreadable(among: record) }
    if fault == .datesRefusedWrites { state.date(record) }
    do {
      if keepsLog { try state.append(record) } else { try state.replace(applying: record) }
    } catch {
      if fault == .ignoresErrorsOfLongKeys, record.hasLongKey { return }
      if fault == .ignoresErrorsOfRemovals, operations.count > 1, operations.allSatisfy(\.isRemoval) {
        return
      }
      if fault == .appliesBeforeWriting, record.changes.allSatisfy({ $0.data == nil }) {
        for change in record.changes {
          if let key = change.key { state.entries[key] = nil } else { state.entries = [:] }
        }
      }
      if fault == .repeatsRefusedWrites { state.refused.append(record) }
      throw error
    }
    if fault == .countsRefusedWrites { state.surplus -= 1 }
    if fault == .compacts || fault == .compactsIgnoringErrors { state.compact() }
  }

  package func close() async throws {
    try state.withLock { state in
      if fault == .ignoresRewriteErrors { try state.replace(applying: CrashFaultLog.Record([])) }
      state.file = nil
    }
  }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try perform { state in
      do {
        return try state.value(of: key.value)
      } catch {
        if [.dropsUnreadable, .forgetsUnreadable].contains(fault) { state.entries[key.value] = nil }
        if fault == .nilAfterReadErrors || fault == .dropsUnreadable { return nil }
        throw error
      }
    }
  }

  package func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try perform { state in
      if fault == .absentAfterAccessErrors, state.file?.canBeFound == false { return false }
      return state.entries[key.value] != nil
    }
  }

  package func allKeys() async throws -> [CacheKey] {
    try perform { $0.entries.keys.map(CacheKey.init(verbatim:)) }
  }

  package func keyCount() async throws -> Int {
    try perform { state in
      if fault == .uncountedAfterAccessErrors, state.file?.canBeFound == false { return 0 }
      return state.entries.count + state.surplus
    }
  }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { state in
      if fault == .undatedAfterAccessErrors, state.file?.canBeFound == false { return nil }
      return state.entries[key.value]?.createdAt
    }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { $0.entries[key.value]?.updatedAt }
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    try perform { state in
      let skips = fault == .skipsUnreadable || fault == .skipsUnreadableAtSecondAttempt
      let values = try state.values(skipping: skips, attempts: fault == .skipsUnreadable ? 1 : 2)
      return state.entries.sorted { $0.value.sequence < $1.value.sequence }.compactMap { name, entry in
        let key = CacheKey(verbatim: name)
        return values[key].map {
          StorageEntry(key: key, data: $0, createdAt: entry.createdAt, updatedAt: entry.updatedAt)
        }
      }
    }
  }
}

extension SystemFaultEngine.State {
  private static let headSize = 12

  /// Reads all records. Truncates the file after the last complete one.
  mutating func load(mayBeEmpty: Bool) throws {
    let bytes = try file?.contents() ?? []
    var position = 0
    while let (payload, end) = Self.payload(in: bytes, at: position) {
      let record = try CrashFaultLog.Record(line: payload)
      note(record, at: position + Self.headSize, count: payload.count)
      position = end
    }
    if position == 0, !mayBeEmpty { throw StorageError(.corrupted, "The log has lost its beginning.") }
    try file?.cut(at: position)
  }

  private static func payload(in bytes: [UInt8], at position: Int) -> (Data, Int)? {
    guard bytes.count >= position + headSize else { return nil }
    let (count, sum) = bytes.withUnsafeBytes {
      (
        Int($0.loadUnaligned(fromByteOffset: position, as: UInt32.self)),
        $0.loadUnaligned(fromByteOffset: position + 4, as: UInt64.self)
      )
    }
    let start = position + headSize
    guard count > 0, bytes.count >= start + count else { return nil }
    let payload = Data(bytes[start..<(start + count)])
    return self.sum(payload) == sum ? (payload, start + count) : nil
  }

  private static func sum(_ payload: Data) -> UInt64 {
    UInt64(payload.withUnsafeBytes { CRC32C.checksum($0) })
  }

  fileprivate static func encode(_ record: CrashFaultLog.Record) -> [UInt8] {
    let payload = record.line
    return withUnsafeBytes(of: UInt32(payload.count)) { Array($0) }
      + withUnsafeBytes(of: sum(payload)) { Array($0) } + payload
  }

  mutating func append(_ record: CrashFaultLog.Record) throws {
    let bytes = Self.encode(record)
    try file?.append(bytes)
    let end = file?.length ?? 0
    note(record, at: end - bytes.count + Self.headSize, count: bytes.count - Self.headSize)
  }

  /// Replaces the file with one that has one or two records for each entry, for its times, and then this record.
  mutating func replace(applying record: CrashFaultLog.Record) throws {
    var copy = SystemFaultEngine.State()
    var bytes: [UInt8] = []
    func add(_ record: CrashFaultLog.Record) throws -> Int {
      let encoded = Self.encode(record)
      bytes += encoded
      return encoded.count - Self.headSize
    }
    for (key, entry) in entries.sorted(by: { $0.value.sequence < $1.value.sequence }) {
      let data = try value(of: key)
      for date in Set([entry.createdAt, entry.updatedAt]).sorted() {
        let record = CrashFaultLog.Record(date: date, changes: [.init(key: key, data: data)])
        let count = try add(record)
        copy.note(record, at: bytes.count - count, count: count)
      }
    }
    let count = try add(record)
    copy.note(record, at: bytes.count - count, count: count)
    try file?.replace(with: bytes)
    (entries, sequence) = (copy.entries, copy.sequence)
  }

  private mutating func note(_ record: CrashFaultLog.Record, at offset: Int, count: Int) {
    for (index, change) in record.changes.enumerated() {
      guard let key = change.key else {
        entries = [:]
        continue
      }
      guard change.data != nil else {
        entries[key] = nil
        continue
      }
      sequence += 1
      let old = entries[key]
      entries[key] = SystemFaultEngine.Entry(
        offset: offset, count: count, change: index, createdAt: old?.createdAt ?? record.date,
        updatedAt: max(old?.updatedAt ?? record.date, record.date), sequence: old?.sequence ?? sequence)
    }
  }

  /// Replaces a long log. If that fails, the log remains.
  fileprivate mutating func compact() {
    guard let length = file?.length, length > 1 << 20 else { return }
    do { try replace(applying: CrashFaultLog.Record([])) } catch {}
  }

  /// Treats entries that cannot be read as absent before they are overwritten.
  fileprivate mutating func forgetUnreadable(among record: CrashFaultLog.Record) {
    for change in record.changes where change.data != nil {
      guard let key = change.key else { continue }
      do { _ = try value(of: key) } catch { entries[key] = nil }
    }
  }

  /// Sets the times of the entries that are to be overwritten.
  fileprivate mutating func date(_ record: CrashFaultLog.Record) {
    for change in record.changes where change.data != nil {
      if let key = change.key { entries[key]?.updatedAt = record.date }
    }
  }

  /// - Parameter skipping: Whether values that cannot be read after these attempts are left out.
  func values(skipping: Bool = false, attempts: Int = 1) throws -> [CacheKey: Data] {
    var values: [CacheKey: Data] = [:]
    for key in entries.keys {
      for _ in 0..<attempts where values[CacheKey(verbatim: key)] == nil {
        do { values[CacheKey(verbatim: key)] = try value(of: key) } catch  where skipping {}
      }
    }
    return values
  }

  /// The value in the file.
  func value(of key: String) throws -> Data? {
    guard let entry = entries[key] else { return nil }
    let bytes = try file?.bytes(at: entry.offset, count: entry.count) ?? []
    guard bytes.count == entry.count else { return Data(bytes) }
    return try CrashFaultLog.Record(line: Data(bytes)).changes[entry.change].data
  }
}

extension StorageOperation {
  fileprivate var isRemoval: Bool { if case .remove = self { true } else { false } }
}
