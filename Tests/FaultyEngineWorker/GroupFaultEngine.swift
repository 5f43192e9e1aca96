import ConformanceKit
import Foundation
import StockroomCore

/// A correct engine for one process that commits the changes of concurrent tasks as one record of its log. Its faults
/// let a failed system call affect other tasks.
package final class GroupFaultEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    case repeatsGroups, keepsChangesOfFailedBodies, undoesWholeGroups, answersOnlyTheFirst, failsWholeGroups
    case keepsHalfOfFailedGroups, findsNothingWhereReadsFail
  }

  package let capabilities = SystemFaultEngine.promises
  private let engine: SystemFaultEngine
  private let fault: Fault?
  private let state: MutexProtected<State>

  private struct State {
    /// The contents of the log, so that it need not be read at the beginning of each group.
    var values: [CacheKey: Data]
    var requests: [Request] = []
    var isCommitting = false
  }

  private struct Request {
    let body: @Sendable (CopyTransaction) throws -> Void
    let answer: @Sendable (Result<Void, any Error>) -> Void
  }

  package init(directory: URL, fault: Fault? = nil) throws {
    engine = try SystemFaultEngine(directory: directory)
    self.fault = fault
    state = MutexProtected(State(values: try engine.perform { try $0.values() }))
  }

  package func close() async throws { try await engine.close() }

  // MARK: Changes

  package func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    if operations.isEmpty { return }
    try await enqueue { try $0.apply(operations) }
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let result = MutexProtected<Result?>(nil)
    try await enqueue { transaction in
      let value = try body(transaction)
      result.withLock { $0 = value }
    }
    guard let value = result.withLock({ $0 }) else { throw StorageError(.io, "A body has not been run.") }
    return value
  }

  private func enqueue(_ body: @escaping @Sendable (CopyTransaction) throws -> Void) async throws {
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      let isFirst = state.withLock { state in
        state.requests.append(Request(body: body) { continuation.resume(with: $0) })
        defer { state.isCommitting = true }
        return !state.isCommitting
      }
      if isFirst { DispatchQueue.global().async { self.commitAll() } }
    }
  }

  private func commitAll() {
    while true {
      let group = state.withLock { state in
        defer { state.requests = [] }
        state.isCommitting = !state.requests.isEmpty
        return state.requests
      }
      if group.isEmpty { return }
      for (request, result) in zip(group, commit(group)) { request.answer(result) }
    }
  }

  /// Runs all bodies one after the other, and writes their changes in one record. Returns the outcome of each.
  private func commit(_ group: [Request], isRepetition: Bool = false) -> [Result<Void, any Error>] {
    var values = state.withLock { $0.values }
    var operations: [StorageOperation] = []
    var results: [Result<Void, any Error>] = []
    for request in group {
      let transaction = CopyTransaction(values) { [engine, fault] key, value in
        do {
          try engine.perform { _ = try $0.value(of: key.value) }
        } catch  where fault == .findsNothingWhereReadsFail { return nil }
        return value
      }
      var done: [StorageOperation] = []
      do {
        try request.body(transaction)
        done = transaction.end()
        results.append(.success(()))
      } catch {
        let undone = transaction.end()
        switch fault {
        case .repeatsGroups where !isRepetition:
          // Writes the changes of the others, and then runs all bodies again.
          if write(operations) != nil { break }
          return commit(group, isRepetition: true)
        case .keepsChangesOfFailedBodies: done = undone
        case .undoesWholeGroups: (values, operations) = (state.withLock { $0.values }, [])
        case .failsWholeGroups: results = results.map { _ in .failure(error) }
        default: break
        }
        results.append(.failure(error))
      }
      for operation in done { operation.apply(to: &values) }
      operations += done
    }
    guard let error = write(operations) else { return results }
    if fault == .answersOnlyTheFirst { return [.failure(error)] + results.dropFirst() }
    return group.map { _ in .failure(error) }
  }

  private func write(_ operations: [StorageOperation]) -> (any Error)? {
    if operations.isEmpty { return nil }
    do {
      try engine.perform { try $0.append(CrashFaultLog.Record(operations)) }
      state.withLock { state in
        for operation in operations { operation.apply(to: &state.values) }
      }
      return nil
    } catch {
      // Writes one change of the group, as if the write had been interrupted.
      if fault == .keepsHalfOfFailedGroups, operations.count > 1 { _ = write([operations[0]]) }
      return error
    }
  }

  // MARK: Reads

  package func read(key: CacheKey) async throws -> Data? { try await engine.read(key: key) }

  package func allKeys() async throws -> [CacheKey] { try await engine.allKeys() }

  package func createdAt(key: CacheKey) async throws -> Date? { try await engine.createdAt(key: key) }

  package func updatedAt(key: CacheKey) async throws -> Date? { try await engine.updatedAt(key: key) }

  package func readAllEntries() async throws -> [StorageEntry] { try await engine.readAllEntries() }
}
