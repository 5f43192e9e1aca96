import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

@testable import ConformanceKit

/// Has transactions in front of a server that has none. Each read in a body is a request to the server.
struct ReadsInBodies: FaultyEngine {
  enum Fault: Sendable {
    /// A read in a body is repeated up to seven times until the server answers, far beyond its time limit.
    case isPatient
    case ignoresCancellation
    /// A body whose connection is lost continues on another one, without its earlier writes.
    case continuesAfterLosses
  }

  /// A transaction that continues although the server has aborted it.
  private final class Reconnecting: ForwardingTransaction {
    private(set) var operations: [StorageOperation] = []
    override func read(key: CacheKey) throws -> Data? {
      do {
        return try base.read(key: key)
      } catch let error as StorageError where error.code == .unavailable {
        operations = []
        return try base.read(key: key)
      }
    }
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      operations.append(.write(data, key: key))
    }
  }

  let base: WireEngine
  private let fault: Fault?

  init(_ directory: URL, port: UInt16, fault: Fault?) async throws {
    base = try await WireEngine(
      directory, port: port, fault: fault == .continuesAfterLosses ? .neverReadsAgain : .none)
    self.fault = fault
  }

  static let promises = WireEngine.promises.union(.transactions)

  var capabilities: EngineCapabilities { Self.promises }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let (result, operations) = try await thread.runCancellably { [self] flag in
      let transaction = CopyTransaction([:]) { key, _ in try ask(for: key, flag) }
      // Even if the body throws.
      defer { transaction.end() }
      if fault == .continuesAfterLosses {
        let reconnecting = Reconnecting(transaction)
        return (try body(reconnecting), reconnecting.operations)
      }
      return (try body(transaction), transaction.end())
    }
    try await base.apply(operations)
    return result
  }

  private final class Answer: Sendable {
    let result = MutexProtected<Result<Data?, any Error>?>(nil)
    let hasCome = DispatchSemaphore(value: 0)
  }

  /// Must run on a thread that may block.
  private func ask(for key: CacheKey, _ flag: CancellationFlag) throws -> Data? {
    var attempts = 0
    while true {
      let answer = Answer()
      Task.detached { [base] in
        do {
          let data = try await base.read(key: key)
          answer.result.withLock { $0 = .success(data) }
        } catch {
          answer.result.withLock { $0 = .failure(error) }
        }
        answer.hasCome.signal()
      }
      while answer.hasCome.wait(timeout: .now() + .milliseconds(5)) == .timedOut {
        if fault != .ignoresCancellation { try flag.check() }
      }
      attempts += 1
      switch answer.result.withLock({ $0.take() }) {
      case .success(let data)?: return data
      case .failure(let error)?: if fault != .isPatient || attempts == 8 { throw error }
      case nil: throw StorageError(.io, "There is no answer.")
      }
    }
  }
}
