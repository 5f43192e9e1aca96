import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A correct engine that keeps everything in one file with a checksum, and replaces the file with every write. Its
/// faults appear when a file is corrupted, a resource is exhausted, permission is denied, or the clock is set back.
package final class EnvironmentFaultEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // Corruption
    case trapsOnCorruption, hangsOnCorruption, emptiesOnCorruption, ignoresSums, callsCorruptionIO,
      removesWhatIsCorrupted, movesWhatIsCorruptedAside, emptiesWithoutItsMarker, dropsLongKeysOnCorruption
    // A full disk
    case ignoresErrorsOfLongKeys
    case writesInPlace, writesBatchesInParts, importsInParts, touchesTimesFirst, staysFull, forgetsWhenFull,
      callsFullClosed, cannotOpenWhenFull
    // Transactions
    case mergesTransactionsFirst
    // Descriptors and permission
    case leaksDescriptors, leavesFilesWhenNotOpened, emptyWithoutDescriptors, nilWithoutDescriptors,
      trapsWithoutDescriptors
    case existsNotWithoutDescriptors
    case callsDescriptorsCorrupted
    case concealsPath, concealsCause, emptyWithoutPermission, forgetsWhenRefused
    // The clock
    case updatesBackwards, remembersTimesUntilClosed, listsByTime, updatesBackwardsInTransactions
    case waitsForTheClock
    // Permissions
    case makesFilesForAll, makesDirectoriesForAll
    // No faults: another file beside that of the entries, and calls that wait for a timer
    case hasLockFile, hasPreallocatedLog, waitsWithTimers
  }

  package static let promises: EngineCapabilities = [
    .persistent, .atomicBatches, .detectsCorruption, .transactions,
  ]

  /// If there is another file, it cannot detect that the file of the entries is missing.
  package static func promises(with fault: Fault?) -> EngineCapabilities {
    fault == .hasPreallocatedLog ? promises.subtracting(.detectsCorruption) : promises
  }

  package var capabilities: EngineCapabilities { Self.promises(with: fault) }
  private let state: MutexProtected<State>
  private let file: EnvironmentFaultFile
  private let fault: Fault?

  private struct State: Sendable {
    var entries: [String: EnvironmentFaultEntry] = [:]
    var isFull = false
    var isClosed = false
  }

  package init(directory: URL, fault: Fault? = nil) throws {
    self.fault = fault
    file = EnvironmentFaultFile(directory: directory, fault: fault)
    var state = State()
    let loaded: [EnvironmentFaultEntry]
    do {
      loaded = try file.load()
    } catch {
      if fault == .leavesFilesWhenNotOpened {
        try Data().write(to: directory.appending(path: "recovered-\(UUID().uuidString)"))
      }
      throw error
    }
    for var entry in loaded {
      if fault == .remembersTimesUntilClosed { entry.updatedAt = entry.createdAt }
      state.entries[entry.key] = entry
    }
    self.state = MutexProtected(state)
  }

  private func look<Result>(_ body: ([String: EnvironmentFaultEntry]) throws -> Result) throws -> Result {
    try state.withLock { state in
      if state.isClosed { throw StorageError(.closed, "The engine has been closed.") }
      if fault == .nilWithoutDescriptors || fault == .trapsWithoutDescriptors {
        let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
        if descriptor >= 0 {
          systemClose(descriptor)
        } else {
          precondition(fault == .nilWithoutDescriptors, "There is no descriptor left.")
          return try body([:])
        }
      }
      return try body(state.entries)
    }
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    if fault == .waitsWithTimers { try await Task.sleep(for: .milliseconds(3)) }
    try operations.validate()
    if fault == .writesBatchesInParts {
      for operation in operations { try commit([operation]) }
    } else {
      try commit(operations)
    }
  }

  package func writeEntries(_ entries: [StorageEntry]) async throws {
    let operations = entries.map { StorageOperation.write($0.data, key: $0.key) }
    guard fault == .importsInParts else { return try await apply(operations) }
    try operations.validate()
    for operation in operations { try commit([operation]) }
  }

  package func keyExists(_ key: CacheKey) async throws -> Bool {
    if fault == .existsNotWithoutDescriptors {
      let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
      if descriptor < 0 { return false }
      systemClose(descriptor)
    }
    return try await read(key: key) != nil
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try state.withLock { state in
      if state.isClosed { throw StorageError(.closed, "The engine has been closed.") }
      let values = state.entries.map { (CacheKey(verbatim: $0.key), $0.value.data) }
      let transaction = CopyTransaction(Dictionary(values) { first, _ in first })
      defer { transaction.end() }
      let result = try body(transaction)
      try commit(transaction.end(), &state, isTransaction: true)
      return result
    }
  }

  private func commit(_ operations: [StorageOperation]) throws {
    try state.withLock { try commit(operations, &$0) }
  }

  private func commit(
    _ operations: [StorageOperation], _ state: inout State, isTransaction: Bool = false
  ) throws {
    if state.isClosed { throw StorageError(.closed, "The engine has been closed.") }
    if state.isFull { throw StorageError(.diskFull, "There was no room once.") }
    var entries = state.entries
    if fault == .waitsForTheClock, let newest = entries.values.map(\.updatedAt).max() {
      while Date() < newest { usleep(10_000) }
    }
    let followsClock =
      fault == .updatesBackwards || isTransaction && fault == .updatesBackwardsInTransactions
    for operation in operations { entries.apply(operation, followsClock: followsClock) }
    if isTransaction, fault == .mergesTransactionsFirst { state.entries = entries }
    if fault == .touchesTimesFirst {
      for key in operations.compactMap(\.key) { state.entries[key.value]?.updatedAt = Date() }
    }
    do {
      try file.save(entries.values.sorted { $0.sequence < $1.sequence })
    } catch {
      if fault == .ignoresErrorsOfLongKeys, CrashFaultLog.Record(operations).hasLongKey { return }
      if fault == .staysFull { state.isFull = true }
      if fault == .forgetsWhenRefused, (error as? StorageError)?.code == .permissionDenied {
        state.entries = [:]
      }
      if fault == .forgetsWhenFull || fault == .writesInPlace { state.entries = [:] }
      throw error
    }
    state.entries = entries
  }

  package func close() async throws { state.withLock { $0.isClosed = true } }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try look { $0[key.value]?.data }
  }

  package func allKeys() async throws -> [CacheKey] { try look { $0.keys.map(CacheKey.init(verbatim:)) } }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0[key.value]?.createdAt }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0[key.value]?.updatedAt }
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    let entries = try look { Array($0.values) }
    let inOrder = entries.sorted {
      fault == .listsByTime ? $0.createdAt < $1.createdAt : $0.sequence < $1.sequence
    }
    return inOrder.map {
      StorageEntry(
        key: CacheKey(verbatim: $0.key), data: $0.data, createdAt: $0.createdAt, updatedAt: $0.updatedAt)
    }
  }
}

struct EnvironmentFaultEntry: Codable, Sendable {
  let key: String
  var data: Data
  var createdAt: Date
  var updatedAt: Date
  var sequence: Int
}

extension [String: EnvironmentFaultEntry] {
  fileprivate mutating func apply(_ operation: StorageOperation, followsClock: Bool) {
    let now = Date()
    switch operation {
    case .removeAll: self = [:]
    case .remove(let key): self[key.value] = nil
    case .write(let data, let key):
      if let old = self[key.value] {
        self[key.value]?.data = Data(data)
        self[key.value]?.updatedAt = followsClock ? now : Swift.max(old.updatedAt, now)
      } else {
        let sequence = 1 + (values.map(\.sequence).max() ?? 0)
        self[key.value] = EnvironmentFaultEntry(
          key: key.value, data: Data(data), createdAt: now, updatedAt: now, sequence: sequence)
      }
    }
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
