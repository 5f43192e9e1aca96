internal import Foundation

/// The amount of work that the tests of this process do.
package enum TestRun {
  /// Whether every check runs against every faulty engine, and loops use their highest counts. Set by `make
  /// test-exhaustive`. Takes long.
  package static let isExhaustive = ProcessInfo.processInfo.environment["STOCKROOM_EXHAUSTIVE_TESTS"] != nil

  /// The number of repetitions.
  package static func count(_ usual: Int, exhaustive: Int) -> Int { isExhaustive ? exhaustive : usual }
}
