import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: load")
struct LevelDBLoadTests {
  let directory: TemporaryDirectory
  let engine: LevelDBStorageEngine

  init() throws {
    directory = try TemporaryDirectory()
    engine = try directory.open()
  }

  @Test("A hundred thousand entries go into one batch, and more keys, repeated, into one request")
  func manyKeys() async throws {
    let keys = (0..<100_000).map { CacheKey(verbatim: "key/\($0)") }
    try await engine.write(keys.map { ($0, Data($0.value.utf8)) })
    #expect(try await engine.keyCount() == keys.count)
    let request = (0..<200_000).map { keys[$0 * 7919 % keys.count] }
    let values = try await engine.read(keys: request)
    #expect(values.count == request.count)
    #expect(zip(values, request).allSatisfy { $0 == Data($1.value.utf8) })
    try await engine.remove(keys: keys.filter { $0.value.hasSuffix("0") })
    #expect(try await engine.keyCount() == 90_000)
    #expect(try await engine.allKeys().count == 90_000)
  }

  @Test("A value of 64 MiB comes back, before and after reopening")
  func largeValue() async throws {
    let key = CacheKey(verbatim: "large")
    var data = Data(repeating: 0xA5, count: 64 << 20)
    for position in stride(from: 0, to: data.count, by: 997) {
      data[position] = UInt8(truncatingIfNeeded: position)
    }
    try await engine.write(data, key: key)
    #expect(try await engine.read(key: key) == data)
    try await engine.close()
    let again = try directory.open()
    #expect(try await again.read(key: key) == data)
    #expect(try await again.read(key: key)?.startIndex == 0)
    #expect(try await again.updatedAt(key: key) != nil)
  }

  @Test("Sixty-four tasks that write, read, remove and scan at once leave a consistent store")
  func hammer() async throws {
    let engine = engine
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<64 {
        group.addTask {
          for round in 0..<20 {
            // Both keys of a pair always have the same value.
            let pair = (task + round) % 8
            let (one, two) = (CacheKey(verbatim: "pair/\(pair)/1"), CacheKey(verbatim: "pair/\(pair)/2"))
            let own = CacheKey(verbatim: "own/\(task)")
            let data = Data("\(task) \(round)".utf8)
            switch round % 4 {
            case 0: try await engine.write([(one, data), (two, data)])
            case 1: try await engine.remove(keys: [one, two])
            case 2:
              try await engine.apply([.remove(key: one), .write(data, key: two), .write(data, key: one)])
            default: _ = try await engine.readAllEntries()
            }
            let both = try await engine.read(keys: [one, two])
            #expect(both.isEmpty || both.count == 2 && both[0] == both[1])
            let scanned = try await engine.scan(.prefix("pair/\(pair)/"), limit: nil).map(\.data)
            #expect(scanned.isEmpty || scanned.count == 2 && scanned[0] == scanned[1])
            try await engine.write(data, key: own)
            #expect(try await engine.read(key: own) == data)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try await engine.keyCount() == engine.allKeys().count)
    let keys = try await engine.allKeys()
    try await engine.close()
    #expect(try await directory.open().allKeys() == keys)
  }

  @Test("A cancelled call throws and has done nothing, or returns and has done all")
  func cancellation() async throws {
    let engine = engine
    for number in 0..<100 {
      let keys = (0..<10).map { CacheKey(verbatim: "\(number)/\($0)") }
      let task = Task { try await engine.write(keys.map { ($0, Data($0.value.utf8)) }) }
      if number.isMultiple(of: 2) { await Task.yield() }
      task.cancel()
      let result = await task.result
      let written = try await engine.keysExist(keys)
      switch result {
      case .success: #expect(written == keys)
      case .failure(let error):
        #expect(error is CancellationError)
        #expect(written.isEmpty)
      }
    }
  }

  @Test("What a closed engine was asked for earlier is finished first, and later calls throw")
  func closingUnderLoad() async throws {
    let engine = engine
    let acknowledged = await withTaskGroup(of: CacheKey?.self) { group in
      for number in 0..<200 {
        group.addTask {
          let key = CacheKey(verbatim: "\(number)")
          do { try await engine.write(Data(), key: key) } catch let error as StorageError
            where error.code == .closed
          {
            return nil
          } catch {
            Issue.record(error)
            return nil
          }
          return key
        }
      }
      group.addTask {
        do { try await engine.close() } catch { Issue.record(error) }
        return nil
      }
      return await group.reduce(into: Set<CacheKey>()) { if let key = $1 { $0.insert(key) } }
    }
    #expect(try await Set(directory.open().allKeys()) == acknowledged)
  }
}
