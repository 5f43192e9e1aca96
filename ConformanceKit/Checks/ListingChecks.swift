#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Unchanged entries in lists while others are added and removed: rule R3. The rule also applies to engines that read
// page by page.

extension CheckDefinition {
  @CheckList static var listingChecks: [CheckDefinition] {
    for method in ReadMethod.ofEverything {
      Check(
        .r3, "reads.\(method.rawValue)-beside-writers",
        "\(method.call) returns each unchanged entry exactly once while others are written and removed "
          + "around it",
        needs: method == .scan ? .orderedScans : []
      ) { try await checkSteadyEntries($0, method) }
    }
  }
}

extension ReadMethod {
  /// Methods that return all entries in one call.
  fileprivate static let ofEverything: [ReadMethod] = [
    .allKeys, .readAllData, .readAllDataAndKeys, .readAllEntries, .scan,
  ]

  /// The text of each key that the method finds. Each value has the same text.
  fileprivate func names(in engine: EngineUnderTest) async throws -> [String] {
    switch self {
    case .allKeys: try await engine.allKeys().map(\.value)
    case .readAllData: try await engine.readAllData().map { String(decoding: $0, as: UTF8.self) }
    case .readAllEntries: try await engine.readAllEntries().map(\.key.value)
    case .scan: try await engine.scan(.all, limit: nil).map(\.key.value)
    default: try await engine.readAllDataAndKeys().map(\.key.value)
    }
  }
}

private func checkSteadyEntries(_ context: CheckContext, _ method: ReadMethod) async throws {
  let engine = try await context.open()
  let wanted = context.byLevel(quick: 601, standard: 2_501, exhaustive: 10_001)
  let affordable = try await context.affordableEntries()
  let count = min(wanted, max(101, min(affordable.writes / 2, affordable.reads / 100)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries") }
  let steady = keys(count, prefix: "k-")
  // Before and between the steady keys, in the order of bytes and in the order of first writes.
  let passing = steady.enumerated().filter { $0.offset % 8 == 0 }.map { key($0.element.value + " passing") }
  func entries(_ keys: [CacheKey]) -> [(key: CacheKey, data: Data)] { keys.map { ($0, data($0.value)) } }
  for start in stride(from: 0, to: count, by: 8) {
    try await engine.write(entries([passing[start / 8]] + steady[start..<min(start + 8, count)]))
    context.noteProgress()
  }
  let expected = Set(steady.map(\.value))
  try await whileRunning(rounds: context.byLevel(quick: 60, standard: 300, exhaustive: 3_000)) { round in
    context.noteProgress()
    let key = passing[round * 7 % passing.count]
    try await engine.remove(key: key)
    await Task.yield()
    try await engine.write(data(key.value), key: key)
  } readers: {
    let found = try await method.names(in: engine).filter(expected.contains)
    let different = Set(found)
    try expect(
      found.count == count && different.count == count,
      "while other entries were written and removed, \(method.call) returned \(different.count) of \(count) "
        + "unchanged entries, and \(found.count - different.count) of them more than once")
  }
}
