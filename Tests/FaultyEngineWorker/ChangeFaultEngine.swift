import Foundation
import StockroomCore

/// A correct engine with a change feed, on a log that several processes share. Its faults affect the reported changes.
package final class ChangeFaultEngine: ApplyingEngine {
  package static let promises: EngineCapabilities = [
    .persistent, .atomicBatches, .snapshotReads, .multiProcess, .transactions, .changeFeed,
  ]
  package let capabilities = promises

  fileprivate struct State: ~Copyable {
    var log: ChangeFaultLog?
    var entries: [CacheKey: Data] = [:]
    var dates: [CacheKey: (createdAt: Date, updatedAt: Date, sequence: Int)] = [:]
    var sequence = 0
    /// How many changes this engine has made.
    var changes = 0
    /// The changes by others that cannot be read here yet, with the number of calls since then.
    var late: [(record: CrashFaultLog.Record, age: Int)] = []
    /// The keys that `allKeys()` returns while a change is in progress, with a fault.
    var listed: [CacheKey]?
    /// The latest `updatedAt` of the imported entries, for a fault.
    var newest = Date.distantPast
  }

  private let state: MutexProtected<State>
  private let feed: ChangeFaultFeed
  private let fault: Fault?
  private let transactions = DedicatedThread()
  private let underWay = MutexProtected(0)

  package init(directory: URL, fault: Fault? = nil) throws {
    self.fault = fault
    feed = ChangeFaultFeed(fault, place: directory)
    var state = State()
    state.log = try ChangeFaultLog(in: directory)
    self.state = MutexProtected(state)
    if fault == .announcesOpenings { feed.reportToAllEngines(.everything) }
    if fault == .announcesOpeningsOfOtherProcesses { feed.noteOpening() }
  }

  deinit {
    transactions.stop()
    feed.close()
  }

  /// Runs the body while it holds the lock of the place.
  private func perform<Result: Sendable>(_ body: (inout State) throws -> Result) throws -> Result {
    try state.withLock { state in
      guard state.log != nil else { throw StorageError(.closed, "The engine has been closed.") }
      state.log?.lock()
      defer { state.log?.unlock() }
      let records = try state.log?.newRecords() ?? []
      if fault == .announcesOthersEarly {
        state.late = state.late.map { (record: $0.record, age: $0.age + 1) }
        state.late += records.map { (record: $0, age: 0) }
        for (record, _) in state.late.prefix(while: { $0.age >= 3 }) {
          state.apply(record.operations, at: record.date)
        }
        state.late.removeAll { $0.age >= 3 }
      } else {
        for record in records { state.apply(record.operations, at: record.date) }
      }
      feed.report(ofOthers: records.flatMap(\.operations))
      return try body(&state)
    }
  }

  private func commit(
    _ operations: [StorageOperation], by call: ChangeFaultFeed.Call,
    to subscribers: ChangeFaultFeed.Subscribers? = nil, _ state: inout State
  ) throws {
    let record = CrashFaultLog.Record(operations)
    let isNew = !operations.contains { operation in
      if case .write(_, let key) = operation { state.entries[key] != nil } else { false }
    }
    let isRewritten = operations.allSatisfy { operation in
      if case .write(let data, let key) = operation { state.entries[key] == data } else { false }
    }
    let removesOnly = operations.allSatisfy { if case .remove = $0 { true } else { false } }
    let isMissed =
      fault == .missesRewrittenBatches && call == .writeMany && isRewritten
      || fault == .missesRemovalsOfApplies && call == .apply && removesOnly
      || fault == .missesRemovalsOfTransactions && call == .transaction && removesOnly
      || fault == .missesEmptyingTransactions && call == .transactionRemoveAll && operations.count == 1
      || fault == .missesRewritesOfTransactions && call == .transaction && isRewritten
      || fault == .missesChangesOfOrigins && ChangeOrigin.current != nil
      || fault == .asksForTheNewest && call != .writeEntries && Date() < state.newest
    try state.log?.append(record)
    state.apply(operations, at: record.date)
    state.changes += 1
    let reported = isMissed ? .none : isNew || call != .write ? call : .overwrite
    feed.report(of: operations, by: reported, to: subscribers)
  }

  // MARK: - Changes

  private func commit(_ operations: [StorageOperation], by call: ChangeFaultFeed.Call) async throws {
    do {
      try operations.validate()
      try Task.checkCancellation()
    } catch {
      feed.noteError(operations)
      if fault == .announcesCancelledCalls, error is CancellationError {
        feed.report(of: operations, by: call)
      }
      throw error
    }
    if operations.isEmpty {
      try perform { _ in }
      if fault == .announcesEmptyBatches && call != .writeEntries { feed.report(.everything) }
      if fault == .announcesEmptyImports && call == .writeEntries { feed.report(.everything) }
      return
    }
    let isEarly =
      fault == .announcesBeforeItWrites || fault == .announcesImportsEarly && call == .writeEntries
      || fault == .announcesRemovalsEarly && call == .remove
      || fault == .announcesLargeBatchesEarly && operations.count > StorageChanges.defaultKeyLimit
    if isEarly {
      feed.report(of: operations, by: call)
      try? await Task.sleep(for: .milliseconds(2))
    }
    if fault == .notifiesOtherEnginesEarly, let change = StorageChange(of: operations) {
      feed.reportToOtherEngines(change)
      try? await Task.sleep(for: .milliseconds(2))
    }
    let subscribers = fault == .knowsSubscribersEarly ? feed.subscribers : nil
    if fault == .waitsForSubscribers { await feed.waitUntilUnused() }
    underWay.withLock { $0 += 1 }
    defer { underWay.withLock { $0 -= 1 } }
    if fault == .knowsSubscribersEarly || fault == .leavesItToOthers {
      for _ in 0..<20 { await Task.yield() }
    }
    // The sleep ends early if the call is cancelled, and is long enough for that, also on a busy machine.
    let missesCancelled =
      fault == .missesCancelledCalls || fault == .missesCancelledBatches && operations.count > 1
    if missesCancelled { try? await Task.sleep(for: .milliseconds(5)) }
    let isLeft = fault == .leavesItToOthers && underWay.withLock { $0 > 1 }
    let isCancelled = missesCancelled && Task.isCancelled
    let reported = isEarly || isLeft || isCancelled ? .none : call
    if fault == .listsKeysLate {
      try perform { state in
        if state.listed == nil { state.listed = Array(state.entries.keys) }
      }
    }
    try perform { try commit(operations, by: reported, to: subscribers, &$0) }
    guard fault == .listsKeysLate else { return }
    try? await Task.sleep(for: .milliseconds(2))
    try perform { $0.listed = nil }
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    try await commit(operations, by: operations.contains { $0.isRemoveAll } ? .applyRemoveAll : .apply)
  }

  package func write(_ data: Data, key: CacheKey) async throws {
    try await commit([.write(data, key: key)], by: .write)
  }

  package func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await commit(dataAndKeys.map { .write($0.data, key: $0.key) }, by: .writeMany)
  }

  package func writeEntries(_ entries: [StorageEntry]) async throws {
    // With this fault, the feed queries recently updated entries only.
    let isOld = entries.allSatisfy { $0.updatedAt.timeIntervalSinceNow < -60 }
    let call: ChangeFaultFeed.Call =
      fault == .missesOldEntries && isOld && !entries.isEmpty ? .none : .writeEntries
    try await commit(entries.map { .write($0.data, key: $0.key) }, by: call)
    guard fault == .asksForTheNewest else { return }
    let newest = entries.map(\.updatedAt).max() ?? .distantPast
    try perform { $0.newest = max($0.newest, newest) }
  }

  package func remove(key: CacheKey) async throws { try await commit([.remove(key: key)], by: .remove) }

  package func remove(keys: [CacheKey]) async throws {
    try await commit(keys.map { .remove(key: $0) }, by: .removeMany)
  }

  package func removeAllData() async throws { try await commit([.removeAll], by: .removeAll) }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    if fault == .announcesTransactionsEarly {
      let operations = try perform { state in
        let transaction = CopyTransaction(state.entries)
        _ = try? body(transaction)
        return transaction.end()
      }
      feed.report(of: operations, by: .transaction)
      try? await Task.sleep(for: .milliseconds(2))
    }
    return try await transactions.run { [self] in
      if fault?.runsBodiesBesideOthers == true { return try transactBesideOthers(body) }
      return try perform { state in
        let transaction = CopyTransaction(state.entries)
        do {
          let result = try body(transaction)
          let operations = transaction.end()
          if operations.isEmpty {
            if fault == .announcesTransactionsThatRead { feed.report(.everything) }
          } else {
            let removesAll = operations.contains { $0.isRemoveAll }
            let isMissed =
              fault == .missesImportsOfTransactions && transaction.hasWrittenEntries
              || fault == .missesTransactionsWithRefusals && transaction.hasRefused
            try commit(
              operations, by: isMissed ? .none : removesAll ? .transactionRemoveAll : .transaction, &state)
          }
          return result
        } catch {
          if fault == .announcesTransactionsThatThrow { feed.report(of: transaction.end(), by: .transaction) }
          let hasRemovedAll = transaction.operations.contains { $0.isRemoveAll }
          if fault == .announcesThrownRemovalsOfAll, hasRemovedAll { feed.report(.everything) }
          if fault == .notifiesOthersOfThrownBodies { feed.reportToOtherEngines(.everything) }
          feed.noteError([])
          transaction.end()
          throw error
        }
      }
    }
  }

  /// Runs a body concurrently with others.
  ///
  /// One fault numbers changes by the beginning of their body. A feed that queries changes after the last number that
  /// it has received misses them if others have changed something since. The other faults run the body again then: one
  /// reports the changes of the first run, one only notifies those who had subscribed before the first run.
  private func transactBesideOthers<Result>(_ body: (any StorageTransaction) throws -> Result) throws
    -> Result
  {
    var first: [StorageOperation]?
    let subscribers = feed.subscribers
    while true {
      let (entries, changes) = try perform { ($0.entries, $0.changes) }
      let transaction = CopyTransaction(entries)
      defer { transaction.end() }
      let result = try body(transaction)
      let operations = transaction.end()
      if operations.isEmpty { return result }
      let isDone = try perform { state in
        if fault == .announcesTheFirstRun {
          first = first ?? operations
          guard state.changes == changes else { return false }
          try commit(operations, by: .none, &state)
          feed.report(of: first ?? [], by: .transaction)
        } else if fault == .knowsSubscribersOfBodiesEarly {
          guard state.changes == changes else { return false }
          try commit(operations, by: .transaction, to: subscribers, &state)
        } else {
          try commit(operations, by: state.changes == changes ? .transaction : .none, &state)
        }
        return true
      }
      if isDone { return result }
    }
  }

  package func changes() async throws -> StorageChanges {
    try Task.checkCancellation()
    if fault == .subscribesWhenClosed, state.withLock({ $0.log == nil }) { return feed.subscribe() }
    return try perform { _ in
      let hasFailed = MutexProtected(false)
      return feed.subscribe { [weak self] in
        // Changes by others are detected by polling.
        guard let self, !hasFailed.withLock({ $0 }) else { return }
        do {
          try self.perform { _ in }
        } catch {
          if fault == .stopsLookingAfterErrors { return hasFailed.withLock { $0 = true } }
          self.feed.report(.everything)
        }
      }
    }
  }

  package func close() async throws {
    try await transactions.run {}
    state.withLock { $0.log = nil }
    feed.close()
  }

  // MARK: - Reading

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    if fault == .announcesReads { feed.report(.keys([key])) }
    return try perform { $0.entries[key] }
  }

  package func verify() async throws {
    try perform { _ in }
    if fault == .announcesVerification { feed.report(.everything) }
  }

  package func allKeys() async throws -> [CacheKey] {
    try perform { state in
      if let listed = state.listed { return listed }
      return Array(state.entries.keys)
    }
  }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { $0.dates[key]?.createdAt }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { $0.dates[key]?.updatedAt }
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    try perform { state in
      let dates = state.dates
      return state.entries.compactMap { key, data in
        dates[key].map {
          ($0.sequence, StorageEntry(key: key, data: data, createdAt: $0.createdAt, updatedAt: $0.updatedAt))
        }
      }.sorted { $0.0 < $1.0 }.map(\.1)
    }
  }
}

extension ChangeFaultEngine.State {
  fileprivate mutating func apply(_ operations: [StorageOperation], at now: Date) {
    for operation in operations {
      switch operation {
      case .removeAll: (entries, dates) = ([:], [:])
      case .remove(let key): (entries[key], dates[key]) = (nil, nil)
      case .write(let data, let key):
        sequence += 1
        entries[key] = Data(data)
        let old = dates[key]
        dates[key] = (old?.createdAt ?? now, max(old?.updatedAt ?? now, now), old?.sequence ?? sequence)
      }
    }
  }
}

extension CrashFaultLog.Record {
  /// The operations of the record.
  var operations: [StorageOperation] {
    changes.map { change in
      guard let key = change.key.map(CacheKey.init(verbatim:)) else { return .removeAll }
      return change.data.map { .write($0, key: key) } ?? .remove(key: key)
    }
  }
}
