#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A place that is replaced under an open engine, and put back: rule C6. Places that are never put back are in
// PlaceChecks.

extension CheckDefinition {
  @CheckList static var placeReturnChecks: [CheckDefinition] {
    Check(
      .c6, "place.replaced-and-put-back",
      "an engine whose place is replaced temporarily throws io or uses what is there, and keeps nothing of "
        + "the other place",
      needs: .persistent
    ) { try await checkReturn($0) }
  }
}

private func checkReturn(_ context: CheckContext) async throws {
  let (other, aside) = (context.root.appending(path: "other"), context.root.appending(path: "aside"))
  var (here, there) = (contents(of: "here"), contents(of: "away"))
  let stranger = try await context.open(other)
  try await stranger.write(there.map { (key: $0.key, data: $0.value) })
  try await context.close(stranger)
  let engine = try await context.open()
  try await engine.write(here.map { (key: $0.key, data: $0.value) })
  var visited = ReplacedEngine(engine, known: Set(here.keys).union(there.keys))
  // After this read, the engine has opened or loaded everything that it keeps open or in memory.
  try await visited.read(here, "before its place was replaced")
  for round in 0..<2 {
    try FileManager.default.moveItem(at: context.place, to: aside)
    try FileManager.default.moveItem(at: other, to: context.place)
    try await visited.use(&there, "away \(round)", "while another place was where its own had been")
    try FileManager.default.moveItem(at: context.place, to: other)
    try FileManager.default.moveItem(at: aside, to: context.place)
    try await visited.use(&here, "back \(round)", "after its place had been replaced and put back")
  }
  _ = try await visited.isDone("after its place had been put back") { try await $0.close() }
  engine.release()
  for (place, expected, what) in [(context.place, here, "its place"), (other, there, "the other place")] {
    let fresh = try await context.open(place)
    try visited.expect(
      contentsByKey(try await fresh.readAllDataAndKeys()), is: expected,
      "after it had been closed, an engine that was opened on \(what)")
    try await context.close(fresh)
  }
}

/// The initial contents of a place: some keys that the other place has too, with other values of the same length, and
/// some keys of its own.
private func contents(of place: String) -> [CacheKey: Data] {
  let all = ReplacedEngine.shared + keys(4, prefix: "\(place)-")
  return Dictionary(uniqueKeysWithValues: all.map { ($0, data("\(place) \($0.value)")) })
}

/// An engine whose place is replaced for a while.
private struct ReplacedEngine {
  /// The keys that both places have.
  static let shared = keys(6, prefix: "both-")

  private let engine: EngineUnderTest
  /// Every key that is or was in one of the places.
  private var known: Set<CacheKey>
  /// The keys of changes that threw. They may have been made in either place, or not at all.
  private var undecided: Set<CacheKey> = []

  init(_ engine: EngineUnderTest, known: Set<CacheKey>) { (self.engine, self.known) = (engine, known) }

  /// Reads, changes three entries in three ways, and reads again.
  ///
  /// - Parameter contents: The contents that a newly opened engine must return. Acknowledged changes are applied to
  ///   them.
  mutating func use(_ contents: inout [CacheKey: Data], _ name: String, _ when: String) async throws {
    try await read(contents, when)
    let operations: [StorageOperation] = [
      .write(data(name), key: key("new \(name)")), .write(data(name), key: Self.shared[5]),
      .remove(key: Self.shared[4]),
    ]
    for (number, operation) in operations.enumerated() {
      let isDone = try await isDone(when) { engine in
        switch operation {
        case .write(let data, let key) where number == 0: try await engine.write(data, key: key)
        case .remove(let key): try await engine.remove(key: key)
        default: try await engine.apply([operation])
        }
      }
      guard let key = operation.written?.key ?? operation.removed else { continue }
      known.insert(key)
      if isDone { operation.apply(to: &contents) } else { undecided.insert(key) }
    }
    try await read(contents, when)
  }

  /// Fails if a read returns anything other than these contents.
  func read(_ contents: [CacheKey: Data], _ when: String) async throws {
    for key in known.sorted() where !undecided.contains(key) {
      _ = try await isDone(when) { engine in
        try ConformanceKit.expect(
          try await engine.read(key: key), is: contents[key], "\(when), read(key:) of \(key)")
      }
    }
    _ = try await isDone(when) { engine in
      let found = try contentsByKey(try await engine.readAllDataAndKeys())
      try expect(found, is: contents, "\(when), readAllDataAndKeys()")
    }
    _ = try await isDone(when) { engine in
      let found = try await engine.scan(.all, limit: nil).map { ($0.key, $0.data) }
      try expect(
        Dictionary(found) { first, _ in first }, is: contents, "\(when), scan(.all)")
    }
    _ = try await isDone(when) { engine in
      let (found, expected) = (Set(try await engine.allKeys()), Set(contents.keys))
      try ConformanceKit.expect(
        found.subtracting(undecided).sorted(), is: expected.subtracting(undecided).sorted(),
        "\(when), allKeys(), sorted,")
    }
  }

  /// Fails unless these are the contents, apart from changes that threw.
  func expect(_ found: [CacheKey: Data], is expected: [CacheKey: Data], _ what: String) throws {
    for key in Set(found.keys).union(expected.keys).subtracting(undecided).sorted()
    where found[key] != expected[key] {
      throw Violation(
        "\(what) had \(describe(found[key] as Any)) for \(key) instead of \(describe(expected[key] as Any))")
    }
  }

  func isDone(_ when: String, _ body: (EngineUnderTest) async throws -> Void) async throws -> Bool {
    try await returnsOrThrowsIO(engine, when, body)
  }
}
