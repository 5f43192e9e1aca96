import ConformanceKit
import Testing

extension [ConformanceCheck] {
  /// Runs the checks, as many at a time as the kit allows, and records each failure.
  ///
  /// One after the other, the checks of one engine would take longer than all other tests.
  func runAll() async {
    await withTaskGroup(of: Void.self) { group in
      for check in self {
        group.addTask {
          do { try await check.run() } catch { Issue.record(error, "\(check.id)") }
        }
      }
    }
  }
}
