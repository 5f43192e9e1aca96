import Dispatch
public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Records every call with instruments. ``StockroomCore/StorageEngine/instrumented(as:by:_:)`` returns it.
///
/// Nothing else changes: results, errors, capabilities and the place are those of the engine below. See <doc:MeasuringCalls>.
///
/// Costs two readings of the clock for each call, and the cost of the instruments. A call with N values also adds up their sizes,
/// O(N).
public struct InstrumentedEngine<Base: StorageEngine>: StorageLayer {
  /// The engine whose calls are recorded.
  public let base: Base
  /// The name of the engine in ``StorageCall/engine``.
  public let name: String
  private let instrument: any StorageInstrument

  init(base: Base, name: String?, instruments: [any StorageInstrument]) {
    self.base = base
    self.name = name ?? String(describing: Base.self)
    instrument = instruments.count == 1 ? instruments[0] : InstrumentGroup(instruments: instruments)
  }

  // MARK: Writing

  /// Forwards to ``base``, and records the call.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await measure(.write, CallCounts(entriesRequested: 1, bytesWritten: data.count)) {
      try await base.write(data, key: key)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await measure(
      .writeMany,
      CallCounts(entriesRequested: dataAndKeys.count, bytesWritten: dataAndKeys.byteCount(of: \.data))
    ) {
      try await base.write(dataAndKeys)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    try await measure(
      .writeEntries,
      CallCounts(entriesRequested: entries.count, bytesWritten: entries.byteCount(of: \.data))
    ) {
      try await base.writeEntries(entries)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try await measure(.apply, operations.counts) { try await base.apply(operations) }
  }

  /// Forwards to ``base``, and records the call.
  public func remove(key: CacheKey) async throws {
    try await measure(.remove, CallCounts(entriesRequested: 1)) { try await base.remove(key: key) }
  }

  /// Forwards to ``base``, and records the call.
  public func remove(keys: [CacheKey]) async throws {
    try await measure(.removeMany, CallCounts(entriesRequested: keys.count)) {
      try await base.remove(keys: keys)
    }
  }

  /// Forwards to ``base``, and records the call.
  public func removeAllData() async throws {
    try await measure(.removeAllData) { try await base.removeAllData() }
  }

  // MARK: Reading

  /// Forwards to ``base``, and records the call.
  public func read(key: CacheKey) async throws -> Data? {
    try await measure(.read, CallCounts(entriesRequested: 1)) {
      try await base.read(key: key)
    } counting: {
      if let data = $1 { ($0.entriesReturned, $0.bytesRead) = (1, data.count) }
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await measure(.readMany, CallCounts(entriesRequested: keys.count)) {
      try await base.read(keys: keys)
    } counting: {
      $0.add($1, \.self)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await measure(.readDataAndKeys, CallCounts(entriesRequested: keys.count)) {
      try await base.readDataAndKeys(keys: keys)
    } counting: {
      $0.add($1, \.data)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func readAllData() async throws -> [Data] {
    try await measure(.readAllData) {
      try await base.readAllData()
    } counting: {
      $0.add($1, \.self)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await measure(.readAllDataAndKeys) {
      try await base.readAllDataAndKeys()
    } counting: {
      $0.add($1, \.data)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await measure(.readAllEntries) {
      try await base.readAllEntries()
    } counting: {
      $0.add($1, \.data)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await measure(.readEntries, CallCounts(entriesRequested: keys.count)) {
      try await base.readEntries(keys: keys)
    } counting: {
      $0.add($1, \.data)
    }
  }

  /// Forwards to ``base``, and records the call.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await measure(.scan) {
      try await base.scan(range, limit: limit)
    } counting: {
      $0.add($1, \.data)
    }
  }

  // MARK: Keys and times

  /// Forwards to ``base``, and records the call.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await measure(.keyExists, CallCounts(entriesRequested: 1)) {
      try await base.keyExists(key)
    } counting: {
      $0.entriesReturned = $1 ? 1 : 0
    }
  }

  /// Forwards to ``base``, and records the call.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await measure(.keysExist, CallCounts(entriesRequested: keys.count)) {
      try await base.keysExist(keys)
    } counting: {
      $0.entriesReturned = $1.count
    }
  }

  /// Forwards to ``base``, and records the call.
  public func keyCount() async throws -> Int { try await measure(.keyCount) { try await base.keyCount() } }

  /// Forwards to ``base``, and records the call.
  public func allKeys() async throws -> [CacheKey] {
    try await measure(.allKeys) {
      try await base.allKeys()
    } counting: {
      $0.entriesReturned = $1.count
    }
  }

  /// Forwards to ``base``, and records the call.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await measure(.createdAt, CallCounts(entriesRequested: 1)) {
      try await base.createdAt(key: key)
    } counting: {
      $0.entriesReturned = $1 == nil ? 0 : 1
    }
  }

  /// Forwards to ``base``, and records the call.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await measure(.updatedAt, CallCounts(entriesRequested: 1)) {
      try await base.updatedAt(key: key)
    } counting: {
      $0.entriesReturned = $1 == nil ? 0 : 1
    }
  }

  // MARK: Transactions, changes, verifying and closing

  /// Runs a transaction of ``base``. Records it as one call, with what the last run of the body read and wrote.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let counter = TransactionCounter()
    return try await measure(.withTransaction, counter.counts) {
      try await base.withTransaction { transaction in
        counter.reset()
        return try body(CountedTransaction(base: transaction, counter: counter))
      }
    }
  }

  /// Returns the stream of ``base``. Records the subscription, not the elements of the stream.
  public func changes() async throws -> StorageChanges {
    try await measure(.changes) { try await base.changes() }
  }

  /// Forwards to ``base``, and records the call.
  public func verify() async throws { try await measure(.verify) { try await base.verify() } }

  /// Closes ``base``, and records the call.
  public func close() async throws { try await measure(.close) { try await base.close() } }

  // MARK: Measuring

  /// Performs a call, and records it.
  ///
  /// - Parameters:
  ///   - counts: The counts that do not depend on the result, evaluated when the call has ended.
  ///   - count: Adds the counts that depend on the result.
  @inline(__always)
  private func measure<Result>(
    _ operation: StorageCall.Operation, _ counts: @autoclosure () -> CallCounts = CallCounts(),
    _ work: () async throws -> Result, counting count: (inout CallCounts, Result) -> Void = { _, _ in }
  ) async throws -> Result {
    // Not `ContinuousClock`: the compiler does not know the size of its instants, and handling them costs more than reading the
    // clock.
    let start = DispatchTime.now()
    do {
      let result = try await work()
      let end = DispatchTime.now()
      var counts = counts()
      count(&counts, result)
      record(operation, start, end, .success, counts)
      return result
    } catch {
      record(operation, start, .now(), .init(error), counts())
      throw error
    }
  }

  private func record(
    _ operation: StorageCall.Operation, _ start: DispatchTime, _ end: DispatchTime,
    _ outcome: StorageCall.Outcome, _ counts: CallCounts
  ) {
    let nanoseconds = Int64(bitPattern: end.uptimeNanoseconds &- start.uptimeNanoseconds)
    instrument.record(
      StorageCall(
        operation, engine: name, duration: .nanoseconds(nanoseconds), outcome: outcome,
        entriesRequested: counts.entriesRequested, entriesReturned: counts.entriesReturned,
        bytesRead: counts.bytesRead, bytesWritten: counts.bytesWritten))
  }
}

extension StorageEngine {
  /// This engine, with every call recorded. See ``InstrumentedEngine``.
  ///
  /// ```swift
  /// engine.instrumented(as: "songs", by: MetricsInstrument(), SlowCallLog(over: .seconds(1)) { print($0) })
  /// ```
  ///
  /// - Parameters:
  ///   - name: The name of the engine in ``StorageCall/engine``. Nil for the name of its type.
  ///   - instrument: Records every call.
  ///   - others: Further instruments, which record every call after that one, in this order.
  public func instrumented(
    as name: String? = nil, by instrument: any StorageInstrument, _ others: any StorageInstrument...
  ) -> InstrumentedEngine<Self> {
    InstrumentedEngine(base: self, name: name, instruments: [instrument] + others)
  }
}
