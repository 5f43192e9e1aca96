import ConformanceKit
import StockroomCore

/// The results of the checks that have ended so far.
final class PartialResults: Sendable {
  /// The results by the name of the engine and the identifier of the check.
  private let results = MutexProtected<[String: [String: ConformanceReport.Result]]>([:])

  func add(_ result: ConformanceReport.Result, engine: String) {
    results.withLock { $0[engine, default: [:]][result.check] = result }
  }

  /// The number of checks that have ended.
  var count: Int { results.withLock { $0.values.reduce(0) { $0 + $1.count } } }

  /// A report of those of the given checks that have ended.
  func report(of suite: ConformanceSuite, _ checks: [ConformanceCheck]) -> ConformanceReport {
    let ended = results.withLock { $0[suite.name] } ?? [:]
    let results = checks.compactMap { ended[$0.id] }
    return suite.report(of: results, seconds: results.reduce(0) { $0 + $1.seconds })
  }
}
