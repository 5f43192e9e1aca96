import Foundation
import StockroomCore
import StockroomKitSupport

/// Makes one system call fail while a subscriber receives the changes of another process: each call that the engine
/// makes, one at a time.
struct FailingFeeds: WorkerTask {
  /// The key that the other process must write next, while the subscriber waits.
  typealias Message = String

  let place: URL
  let seed: UInt64
  /// The maximum number of faults. Nil for all.
  let limit: Int?
  /// How long to wait for an element.
  let timeout: Duration

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    // A feed that polls makes the same calls every time.
    let counts = try await follow("unharmed", nil, interceptor, makeEngine, send).mapValues { min($0, 12) }
    let trials = faults(in: [((), counts)], seed: seed, limit: limit)
    if trials.isEmpty { throw Skip(reason: "The engine makes no system calls to follow others.") }
    for (number, trial) in trials.enumerated() {
      _ = try await follow("\(number)", trial.fault, interceptor, makeEngine, send)
    }
  }

  /// Subscribes, and expects to receive two writes by another process. An engine may also refuse the subscription.
  ///
  /// - Returns: The system calls that were made.
  private func follow(
    _ name: String, _ fault: SystemFault?, _ interceptor: SystemCallInterceptor,
    _ makeEngine: (URL) async throws -> any StorageEngine, _ send: (Message) throws -> Void
  ) async throws -> [SystemCall: Int] {
    let engine = EngineUnderTest(try await makeEngine(place))
    let when = fault.map { "after \($0)" } ?? "with nothing failing"
    interceptor.begin(at: place, fault: fault, losesUnsynced: false)
    do {
      let subscriber = try await ChangeSubscriber(to: engine, timeout: timeout)
      for round in ["first", "second"] {
        let key = CacheKey(verbatim: "followed/\(name)/\(round)")
        try send(key.value)
        try await subscriber.expectCovered([key], "the \(round) write of another process, \(when),")
      }
    } catch let failure as CallFailure {
      if fault == nil { throw failure }
      if let violation = mistake(in: failure.error, of: failure.call) {
        throw Violation("\(when), \(violation.description)", rule: .f4)
      }
    } catch let violation as Violation where fault != nil {
      // An engine that throws until it is reopened reports the failure sufficiently.
      do {
        _ = try await engine.readAllEntries()
        throw violation
      } catch let failure as CallFailure {
        if let violation = mistake(in: failure.error, of: failure.call) { throw violation }
      }
    }
    let counts = interceptor.observation.counts
    interceptor.end()
    do {
      try await engine.close()
    } catch let failure as CallFailure {
      if let violation = mistake(in: failure.error, of: failure.call) { throw violation }
    }
    engine.release()
    return counts
  }
}
