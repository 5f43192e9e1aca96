#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Lists that are read while other entries are added and removed. Only engines with snapshotReads have to return a
// snapshot.

/// Fails unless each list that is read during writes and removals contains every unchanged entry exactly once: an
/// engine that reads page by page may count the entries that it has read, or continue after an entry that has moved.
///
/// - Throws: ``Violation`` of rule R3 or, for allKeys(), K3.
func checkListsBesideChanges(_ context: CheckContext) async throws {
  let engine = try await context.open(context.root.appending(path: "lists", directoryHint: .isDirectory))
  let affordable = try await context.affordableEntries()
  let count = min(1_050, max(50, min(affordable.reads / 20, affordable.writes / 4)))
  if count < 1_050 { context.noteShortfall("lists of \(count) of 1050 entries") }
  let still = keys(count, prefix: "m-")
  try await engine.write(entries(still))
  let rounds = context.rounds(quick: 20, standard: 150, exhaustive: 3_000, of: "changes beside lists")
  let methods: [ReadMethod] = [.allKeys, .readAllDataAndKeys, .readAllEntries, .scan]
  try await whileRunning(
    {
      for round in rounds {
        // Before the others, in the order of keys, and after them.
        let passing = [key("a \(round)"), key("b \(round)"), key("z \(round)")]
        for key in passing { try await engine.write(data("passing"), key: key) }
        await Task.yield()
        try await engine.remove(keys: passing)
        await Task.yield()
      }
    }, readerCount: methods.count
  ) { reader in
    let method = methods[reader]
    let listed =
      switch method {
      case .allKeys: try await engine.allKeys()
      case .readAllDataAndKeys: try await engine.readAllDataAndKeys().map(\.key)
      case .readAllEntries: try await engine.readAllEntries().map(\.key)
      default: try await engine.scan(.all, limit: nil).map(\.key)
      }
    let untouched = listed.filter { $0.value.hasPrefix("m-") }
    // Each engine has its own order.
    if untouched.count == count, Set(untouched).count == count { return }
    let (twice, missing) = (untouched.count - Set(untouched).count, count - Set(untouched).count)
    throw Violation(
      "beside changes of other entries, \(method.call) listed \(twice) of \(count) entries more than once, and "
        + "left \(missing) out, although they had not been changed", rule: method == .allKeys ? .k3 : .r3)
  }
}
