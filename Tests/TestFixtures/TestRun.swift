internal import Foundation

/// How much the tests of this process do.
package enum TestRun {
  /// Whether every faulty engine meets every check, and loops go as far as anybody would want, as `make test-exhaustive` has it: it
  /// takes long.
  package static let isExhaustive = ProcessInfo.processInfo.environment["STOCKROOM_EXHAUSTIVE_TESTS"] != nil

  /// How often something is tried.
  package static func count(_ usual: Int, exhaustive: Int) -> Int { isExhaustive ? exhaustive : usual }
}
