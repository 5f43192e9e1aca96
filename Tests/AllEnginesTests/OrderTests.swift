import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

#if os(Linux)
  /// The creation order. Engines count it in memory, and some reserve a thousand numbers ahead (rule R6).
  @Suite(
    "The order of entries", .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct OrderTests {
    private static let engines = EngineCatalog.onThisMachine.filter {
      $0.capabilities.contains(.persistent)
    }
    .map(\.name)

    @Test(
      "Entries keep the order of their first writes after failed writes, with and without reopening",
      arguments: engines)
    func failedWrites(name: String) async throws {
      let disk = try SmallDisk("size=16m")
      let place = disk.url.appending(path: "engine")
      func open() async throws -> any StorageEngine {
        try await EngineCatalog.select([name])[0].open(place, .process)
      }
      var engine = try await open()
      var expected: [CacheKey] = []
      func write(_ number: Int) async throws {
        // The keys are in neither ascending nor descending order.
        let key = CacheKey(verbatim: "\(number * 37 % 101) \(number)")
        try await engine.write(Data(key.value.utf8), key: key)
        expected.append(key)
      }
      for round in 0..<4 {
        for number in 0..<10 { try await write(20 * round + number) }
        try disk.fill()
        // This batch is not acknowledged, so its sequence numbers are reused or skipped.
        let tooMuch = (0..<4).map { (CacheKey(verbatim: "\(round) failed \($0)"), Data(count: 4 << 20)) }
        let error = await #expect(throws: StorageError.self) {
          try await engine.apply([.remove(key: expected[0])] + tooMuch.map { .write($0.1, key: $0.0) })
        }
        #expect(error?.code == .diskFull)
        try disk.makeRoom()
        if round.isMultiple(of: 2) {
          try await engine.close()
          engine = try await open()
        }
        #expect(try await engine.readAllEntries().map(\.key) == expected)
        try await engine.write(Data("overwritten".utf8), key: expected[0])
        for number in 10..<20 { try await write(20 * round + number) }
        // Removed and written again, so it becomes the last one.
        try await engine.apply([
          .remove(key: expected[1]), .write(Data("renewed".utf8), key: expected[1]),
        ])
        expected.append(expected.remove(at: 1))
        #expect(try await engine.readAllEntries().map(\.key) == expected)
      }
      try await engine.close()
      engine = try await open()
      #expect(try await engine.readAllEntries().map(\.key) == expected)
      try await engine.close()
    }
  }
#endif
