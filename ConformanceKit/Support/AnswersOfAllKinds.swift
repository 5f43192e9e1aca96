#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// What every method that reads must answer about a few entries, which are all that there are.
struct AnswersOfAllKinds: Codable, Sendable {
  /// By key.
  var present: [String: Data] = [:]
  /// Keys that are not there, and may have been.
  var absent: Set<String> = []

  mutating func apply(_ operations: [StorageOperation]) {
    for operation in operations {
      switch operation {
      case .write(let data, let key):
        present[key.value] = data
        absent.remove(key.value)
      case .remove(let key):
        present[key.value] = nil
        absent.insert(key.value)
      case .removeAll:
        absent.formUnion(present.keys)
        present = [:]
      }
    }
  }

  /// Fails unless the engine gives these answers.
  ///
  /// - Parameter first: The number of the method that is asked first: what others remember, its call may put right.
  func verify(_ engine: EngineUnderTest, first: Int) async throws {
    let there = present.keys.map(CacheKey.init(verbatim:)).sorted()
    let gone = absent.map(CacheKey.init(verbatim:)).sorted()
    let all =
      zip(there, gone).flatMap { [$0, $1] } + there.dropFirst(gone.count) + gone.dropFirst(there.count)
    let wanted = all.filter { present[$0.value] != nil }
    let values = wanted.map { present[$0.value] ?? Data() }
    let sorted = there.map { (key: $0, data: present[$0.value] ?? Data()) }
    func listed(_ entries: [(key: CacheKey, data: Data)], _ what: String) throws {
      try expect(entries.sorted { $0.key < $1.key }, are: sorted, what)
    }
    let questions: [() async throws -> Void] = [
      {
        for key in all {
          try expect(try await engine.read(key: key), is: present[key.value], "read(key:) of \(key)")
        }
      },
      {
        for key in all {
          try expect(
            try await engine.keyExists(key), is: present[key.value] != nil, "keyExists(_:) of \(key)")
        }
      },
      { try expect(try await engine.keyCount(), is: there.count, "keyCount()") },
      { try expect(try await engine.allKeys().sorted(), is: there, "allKeys(), sorted,") },
      { try expect(try await engine.read(keys: all), is: values, "read(keys:)") },
      { try expect(try await engine.keysExist(all), is: wanted, "keysExist(_:)") },
      {
        for key in all {
          let times = (try await engine.createdAt(key: key), try await engine.updatedAt(key: key))
          let isThere = present[key.value] != nil
          try expect(times.0 != nil, is: isThere, "whether there is a createdAt(key:) of \(key)")
          try expect(times.1 != nil, is: isThere, "whether there is an updatedAt(key:) of \(key)")
        }
      },
      { try expect(try await engine.scan(.all, limit: nil), are: sorted, "scan(.all)") },
      {
        try listed(try await engine.readAllEntries().map { ($0.key, $0.data) }, "readAllEntries(), sorted,")
      },
      { try listed(try await engine.readAllDataAndKeys(), "readAllDataAndKeys(), sorted,") },
      {
        try expect(
          try await engine.readAllData().count, is: there.count, "the number of values in readAllData()")
      },
      {
        try expect(
          try await engine.readDataAndKeys(keys: all).map(\.data), is: values, "readDataAndKeys(keys:)")
      },
    ]
    for index in questions.indices { try await questions[(index + first) % questions.count]() }
  }
}
