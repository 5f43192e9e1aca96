import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomMemory
import Testing

@Suite struct MemoryStorageEngineTests {
  @Test("Scans stay in byte order through thousands of random writes and removals", arguments: [1, 2, 3])
  func order(seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let engine: some StorageEngine = .memory()
    var model: [CacheKey: Data] = [:]
    for step in 0..<6_000 {
      let key = CacheKey(verbatim: "\(random.next(upTo: 2_000))")
      if random.once(in: 3) {
        try await engine.remove(key: key)
        model[key] = nil
      } else {
        let data = Data("\(step)".utf8)
        try await engine.write(data, key: key)
        model[key] = data
      }
    }
    let sorted = model.sorted { $0.key < $1.key }
    let all = try await engine.scan(.all, limit: nil)
    #expect(all.map(\.key) == sorted.map(\.key))
    #expect(all.map(\.data) == sorted.map(\.value))

    let page = try await engine.scan(
      KeyRange(after: sorted[99].key, upTo: sorted[900].key), limit: 700)
    #expect(page.map(\.key) == sorted[100..<800].map(\.key))
    #expect(try await engine.keyCount() == model.count)
  }

  @Test("Ascending keys fill their chunks, and every chunk can be emptied again")
  func ascending() async throws {
    let engine = MemoryStorageEngine()
    let keys = (0..<10_000).map { CacheKey(verbatim: String($0 + 100_000)) }
    try await engine.write(keys.map { (key: $0, data: Data()) })
    #expect(try await engine.scan(.all, limit: nil).map(\.key) == keys)
    for key in keys.reversed() { try await engine.remove(key: key) }
    #expect(try await engine.scan(.all, limit: nil).isEmpty)
    try await engine.write(Data([1]), key: keys[0])
    #expect(try await engine.scan(.all, limit: nil).map(\.key) == [keys[0]])
  }

  @Test("Entries are in the order of creation, whether few or almost all of them have been removed")
  func order() async throws {
    let engine = MemoryStorageEngine()
    let keys = (0..<2_000).map { CacheKey("\($0)") }
    for key in keys { try await engine.write(Data(), key: key) }
    for divisor in [1, 3, 300] {
      let present = keys.enumerated().filter { $0.offset.isMultiple(of: divisor) }.map(\.element)
      try await engine.remove(keys: keys.filter { !present.contains($0) })
      #expect(try await engine.readAllEntries().map(\.key) == present)
    }
    try await engine.removeAllData()
    #expect(try await engine.readAllEntries().isEmpty)
  }

  @Test("A batch that is longer than readers wait for appears as a whole")
  func longBatches() async throws {
    let engine = MemoryStorageEngine()
    let keys = (0..<5_000).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { (key: $0, data: Data([0])) })
    try await withThrowingTaskGroup { group in
      group.addTask {
        for version in UInt8(1)..<20 { try await engine.write(keys.map { (key: $0, data: Data([version])) }) }
      }
      while try await engine.read(key: keys[0]) != Data([19]) {
        let versions = Set(try await engine.readAllData())
        #expect(versions.count == 1)
        await Task.yield()
      }
      try await group.waitForAll()
    }
  }
}
