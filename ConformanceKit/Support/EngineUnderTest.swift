#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A call that threw although the check expected it to succeed.
struct CallFailure: Error, CustomStringConvertible {
  let call: String
  let error: any Error

  var description: String { "\(call) threw \(shortened(String(describing: error)))" }
}

/// The cause of a `StorageError` that the body of a transaction throws in a check: even with code `conflict`, it is the body's own
/// error, and not a reason to retry.
struct ErrorOfBody: Error {}

/// Thrown by the body of a transaction in a check, to roll it back.
struct ThrownByBody: Error {}

/// The engine that is being checked. Forwards every call, and records which call threw.
///
/// Copies share one reference to the engine, so that a check can release it.
struct EngineUnderTest: StorageEngine {
  private final class Reference: Sendable {
    let engine: MutexProtected<(any StorageEngine)?>

    init(_ engine: any StorageEngine) { self.engine = MutexProtected(engine) }
  }

  private let reference: Reference

  /// Records which calls are in progress.
  private let progress: CheckProgress?

  /// Whether a call that throws is named by a `CallFailure`.
  private var namesCalls = true

  init(_ engine: any StorageEngine, noting progress: CheckProgress? = nil) {
    reference = Reference(engine)
    self.progress = progress
  }

  /// The same engine with the errors that it throws, as a store receives them.
  var withItsOwnErrors: EngineUnderTest {
    var copy = self
    copy.namesCalls = false
    return copy
  }

  /// Releases the reference to the engine. It is the last one unless a call is in progress.
  func release() {
    // The engine's deinitializer may do much work, which should not run while the lock is held.
    _ = reference.engine.withLock { $0.take() }
  }

  private var engine: any StorageEngine {
    get throws {
      guard let engine = reference.engine.withLock({ $0 }) else {
        throw StorageError(.closed, "The check has released the engine.")
      }
      return engine
    }
  }

  /// The engine's description of itself.
  var selfDescriptions: [String] {
    get throws {
      let engine = try engine
      return ["\(engine)", String(reflecting: engine)]
    }
  }

  var capabilities: EngineCapabilities { reference.engine.withLock { $0?.capabilities } ?? [] }

  /// Whether a change that threw this error may have happened, as the rules about networks allow with code
  /// `outcomeUnknown`.
  func leavesOutcomeUnknown(_ error: any Error) -> Bool {
    let cause = (error as? CallFailure)?.error ?? error
    return capabilities.contains(.networked) && (cause as? StorageError)?.code == .outcomeUnknown
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await call("write(_:key:)") { try await engine.write(data, key: key) }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await call("write(_:) of \(dataAndKeys.count)") { try await engine.write(dataAndKeys) }
  }

  func read(key: CacheKey) async throws -> Data? {
    try await call("read(key:)") { try await engine.read(key: key) }
  }

  func read(keys: [CacheKey]) async throws -> [Data] {
    try await call("read(keys:) of \(keys.count)") { try await engine.read(keys: keys) }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await call("readDataAndKeys(keys:) of \(keys.count)") {
      try await engine.readDataAndKeys(keys: keys)
    }
  }

  func readAllData() async throws -> [Data] {
    try await call("readAllData()") { try await engine.readAllData() }
  }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await call("readAllDataAndKeys()") { try await engine.readAllDataAndKeys() }
  }

  func remove(key: CacheKey) async throws {
    try await call("remove(key:)") { try await engine.remove(key: key) }
  }

  func remove(keys: [CacheKey]) async throws {
    try await call("remove(keys:) of \(keys.count)") { try await engine.remove(keys: keys) }
  }

  func removeAllData() async throws {
    try await call("removeAllData()") { try await engine.removeAllData() }
  }

  func keyExists(_ key: CacheKey) async throws -> Bool {
    try await call("keyExists(_:)") { try await engine.keyExists(key) }
  }

  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await call("keysExist(_:) of \(keys.count)") { try await engine.keysExist(keys) }
  }

  func keyCount() async throws -> Int {
    try await call("keyCount()") { try await engine.keyCount() }
  }

  func allKeys() async throws -> [CacheKey] {
    try await call("allKeys()") { try await engine.allKeys() }
  }

  func createdAt(key: CacheKey) async throws -> Date? {
    try await call("createdAt(key:)") { try await engine.createdAt(key: key) }
  }

  func updatedAt(key: CacheKey) async throws -> Date? {
    try await call("updatedAt(key:)") { try await engine.updatedAt(key: key) }
  }

  func readAllEntries() async throws -> [StorageEntry] {
    try await call("readAllEntries()") { try await engine.readAllEntries() }
  }

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await call("readEntries(keys:) of \(keys.count)") { try await engine.readEntries(keys: keys) }
  }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await call("writeEntries(_:) of \(entries.count)") { try await engine.writeEntries(entries) }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    try await call("apply(_:) of \(operations.count)") { try await engine.apply(operations) }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await call("scan(_:limit:)") { try await engine.scan(range, limit: limit) }
  }

  /// For how long to retry a transaction that the engine aborts, while no other transaction's body runs.
  @TaskLocal static var patienceWithConflicts = Duration.seconds(10)

  /// Retries if the engine throws `conflict`, as rule T4 allows: then nothing has been done. It retries often enough,
  /// at the end with pauses, to succeed even if many tasks change one entry.
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let counted: @Sendable (any StorageTransaction) throws -> Result = { [progress] transaction in
      progress?.beginBody()
      defer { progress?.endBody() }
      return try body(transaction)
    }
    var conflicts = 0
    var limit = RunningTimeLimit(Self.patienceWithConflicts)
    while true {
      do {
        return try await call("withTransaction(_:)") { try await engine.withTransaction(counted) }
      } catch  where Self.hasGivenUp((error as? CallFailure)?.error ?? error) {
        conflicts += 1
        // An engine that runs one transaction at a time may abort all others during a body. That may take seconds in
        // some checks, and longer if the machine does not run its thread.
        if !(progress?.hasBodyUnderWay ?? false), limit.isOver(), conflicts > 400 { throw error }
        try Task.checkCancellation()
        if conflicts < 20 {
          await Task.yield()
        } else {
          try await Task.sleep(for: .microseconds(.random(in: 100...2_000)))
        }
      }
    }
  }

  /// Whether the error means that the engine has aborted the transaction.
  private static func hasGivenUp(_ error: any Error) -> Bool {
    guard let error = error as? StorageError, error.code == .conflict else { return false }
    return !(error.underlying is ErrorOfBody)
  }

  func changes() async throws -> StorageChanges {
    try await call("changes()") { try await engine.changes() }
  }

  func verify() async throws {
    try await call("verify()") { try await engine.verify() }
  }

  func close() async throws {
    try await call("close()") { try await engine.close() }
  }

  private func call<Result>(
    _ name: @autoclosure () -> String, _ body: () async throws -> Result
  ) async throws -> Result {
    let call = progress.map { _ in name() }
    if let call { progress?.begin(call) }
    var hasReturned = false
    defer { if let call { progress?.end(call, hasReturned: hasReturned) } }
    do {
      let result = try await body()
      hasReturned = true
      return result
    } catch let failure as CallFailure {
      // If a check that can run in a worker runs in this process, each call passes through two instances of this type.
      throw failure
    } catch let violation as Violation {
      // Thrown by the body of a transaction.
      throw violation
    } catch {
      throw namesCalls ? CallFailure(call: name(), error: error) : error
    }
  }
}

extension EngineUnderTest {
  /// Performs the operations by this method, or by the most specific one.
  func perform(_ operations: [StorageOperation], by method: ChangeMethod? = nil) async throws {
    if let method { return try await method.perform(operations, in: self) }
    let (writes, removals) = (operations.compactMap(\.written), operations.compactMap(\.removed))
    switch operations.first {
    case .write(let data, let key) where operations.count == 1: try await write(data, key: key)
    case .remove(let key) where operations.count == 1: try await remove(key: key)
    case .removeAll where operations.count == 1: try await removeAllData()
    case _ where writes.count == operations.count: try await write(writes)
    case _ where removals.count == operations.count: try await remove(keys: removals)
    default: try await apply(operations)
    }
  }
}
