#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Reads of absent keys. An engine may keep the name of each such key: in a cache of absent keys, in a table of locks or
// of loads in progress, or as a file. Or it may keep a little memory for each call, whatever it reads.

extension ResourceBounds {
  /// The number of absent keys to ask for, and the number if memory or files have then grown by more than
  /// ``ResourceSnapshot/byteTolerance``. The names of `usual` keys take more than that, and the names of `most` keys
  /// more than twice as much.
  private static let keysToAskFor = (usual: 150_000, most: 300_000)

  /// How much more memory and files are tolerated. A cache may have room for many absent keys.
  static let toleranceForAbsentKeys = 2 * ResourceSnapshot.byteTolerance

  /// Asks for very many absent keys, each nearly as long as a key may be.
  func askForAbsentKeys(
    _ engine: EngineUnderTest, _ note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    // Warms up, so that the first snapshot includes what the engine itself needs for such reads.
    for start in stride(from: -5_000, to: 0, by: 250) {
      try note("asking for absent keys")
      try await ask(for: start..<start + 250, engine)
    }
    let first = try await ResourceSnapshot.measured(in: place)
    func growth() async throws -> Int {
      let now = try await ResourceSnapshot.measured(in: place)
      return max(now.memory - first.memory, now.bytes - first.bytes)
    }
    let start = ContinuousClock.now
    var asked = 0
    while true {
      for _ in 0..<10 {
        try note("asking for absent keys after \(asked) of them")
        try await ask(for: asked..<asked + 1_000, engine)
        try await readRepeatedly(engine)
        asked += 1_000
      }
      var grown = try await growth()
      // The engine may take a while to free what it does not need.
      for _ in 0..<20 where grown > Self.toleranceForAbsentKeys {
        try await Task.sleep(for: .milliseconds(50))
        grown = try await growth()
      }
      try expect(
        grown <= Self.toleranceForAbsentKeys,
        "after reads of \(asked) absent keys and of everything there were \(grown >> 20) MiB more of memory or files"
      )
      // A slow engine is asked for fewer keys.
      let isSlow = level != .exhaustive && start.duration(to: .now) > .seconds(10)
      let isEnough = asked >= Self.keysToAskFor.usual && grown <= ResourceSnapshot.byteTolerance
      if isEnough || isSlow || asked >= Self.keysToAskFor.most { return }
    }
  }

  /// Reads everything, and the first few entries, in and outside of transactions.
  private func readRepeatedly(_ engine: EngineUnderTest) async throws {
    for number in 0..<100 {
      _ = try await engine.readAllEntries()
      _ = try await engine.scan(.all, limit: 3)
      guard number.isMultiple(of: 4), engine.capabilities.contains(.transactions) else { continue }
      _ = try await engine.withTransaction { try $0.scan(.all, limit: 3).count }
    }
  }

  private func ask(for numbers: Range<Int>, _ engine: EngineUnderTest) async throws {
    let name = String(repeating: "k", count: 496)
    let keys = numbers.map { ConformanceKit.key("\(name)\(1_000_000_000 + $0)") }
    for method in ReadMethod.allCases where method.isOfManyKeys {
      let found = try await method.found(of: keys, in: engine)
      if !found.isEmpty {
        throw Violation("\(method.call) found \(found.count) absent keys", rule: method.rule)
      }
    }
    let taskCount = 8
    try await gather(0..<taskCount) { task in
      for number in stride(from: task, to: keys.count, by: taskCount) {
        for method in [ReadMethod.read, .keyExists] {
          guard try await !method.found(of: [keys[number]], in: engine).isEmpty else { continue }
          throw Violation("\(method.call) found an absent key", rule: .r1)
        }
      }
    }
  }
}
