import Foundation
import StockroomCore

/// Removes and writes the same keys in turn while the clock jumps. The last change counts, even if an earlier one has a
/// later time: a removal must not be ignored because the entry is from the future, nor a write because the key was
/// removed in the future.
struct RemovalsAmongJumps {
  private let engine: EngineUnderTest
  /// An engine from which everything is removed in each round.
  private let emptied: EngineUnderTest
  /// Every method that removes keys. Each has two keys, one of which exists after each round.
  private let removals: [(way: WayOfRemoving, keys: [CacheKey])]
  private let writing: [ChangeMethod]
  /// The expected values by key.
  private var values: [CacheKey: Data] = [:]

  init(_ engine: EngineUnderTest, emptied: EngineUnderTest) {
    (self.engine, self.emptied) = (engine, emptied)
    removals = waysOfRemoving(engine.capabilities).filter { $0.name != ChangeMethod.removeAll.call }.map {
      way in
      (way, keys(2, prefix: "removed by \(way.name) "))
    }
    writing = ChangeMethod.writing(engine.capabilities)
  }

  /// Checks the entries of the previous round, removes them, and writes the keys that were removed then.
  mutating func run(_ round: Int, _ when: String) async throws {
    for (key, value) in values {
      try expect(try await engine.read(key: key), is: value, "\(when), read(key:) of \(key)")
    }
    let method = writing[round % writing.count]
    for (way, keys) in removals {
      let (written, removed) = (keys[round % 2], keys[1 - round % 2])
      try await way.remove(engine, [removed])
      values[removed] = nil
      try expect(
        try await engine.read(key: removed), is: nil, "\(when), read(key:) of a key after \(way.name)")
      let value = data("round \(round)")
      try await method.perform([(written, value)], in: engine)
      values[written] = value
      try expect(
        try await engine.read(key: written), is: value,
        "\(when), read(key:) of a key after \(method.call), which \(way.name) had removed before,")
    }
    try expect(
      try await engine.allKeys().inByteOrder(), is: values.keys.inByteOrder(), "\(when), allKeys(), sorted,")
    try await removeEverything(round, when)
  }

  private func removeEverything(_ round: Int, _ when: String) async throws {
    let (key, value) = (key("key \(round % 2)"), data("round \(round)"))
    try await emptied.removeAllData()
    try expect(try await emptied.keyCount(), is: 0, "\(when), keyCount() after removeAllData()")
    try await writing[round % writing.count].perform([(key, value)], in: emptied)
    try expect(
      try await emptied.read(key: key), is: value,
      "\(when), read(key:) of what was written after removeAllData()")
    try expect(
      try await emptied.allKeys(), is: [key], "\(when), allKeys() after removeAllData() and one write")
  }

  func close() async throws {
    try await engine.close()
    try await emptied.close()
  }
}
