#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The expected results of all methods that read, for a few entries. There must be no others.
struct ExpectedAnswers: Codable, Sendable {
  /// The values by key.
  var present: [String: Data] = [:]
  /// Absent keys, which may have existed before.
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

  /// Fails unless the engine returns these results.
  ///
  /// - Parameters:
  ///   - first: The index of the method that is called first, because its call may refresh the caches of the others.
  ///   - blamesMethods: Whether a wrong result breaks the rule of its method instead of that of the check.
  func verify(_ engine: EngineUnderTest, first: Int, blamesMethods: Bool = false) async throws {
    let methods = Self.methods(withTransactions: engine.capabilities.contains(.transactions))
    for index in methods.indices {
      let method = methods[(index + first) % methods.count]
      do {
        try await ask(method, engine)
      } catch let violation as Violation where blamesMethods {
        throw Violation(violation.description, rule: method?.rule ?? .t2)
      }
    }
  }

  /// All methods that read. Nil stands for a transaction that reads.
  static func methods(withTransactions: Bool) -> [ReadMethod?] {
    ReadMethod.allCases + (withTransactions ? [nil] : [])
  }

  /// Fails unless the method returns the right result. Nil stands for a transaction.
  func ask(_ method: ReadMethod?, _ engine: EngineUnderTest) async throws {
    let there = present.keys.map(CacheKey.init(verbatim:)).sorted()
    let gone = absent.map(CacheKey.init(verbatim:)).sorted()
    // Makes the same request each time, unless new keys have been added.
    let all = (there + gone).inByteOrder()
    let wanted = all.filter { present[$0.value] != nil }
    let values: [Data?] = wanted.map { present[$0.value] ?? Data() }
    let sorted = there.map { (key: $0, data: present[$0.value] ?? Data()) }
    guard let method else {
      let (keys, single, values, count) = try await engine.withTransaction { transaction in
        let keys = try transaction.scan(.all, limit: nil).map(\.key)
        let single = try all.map { try transaction.read(key: $0) }
        return (keys, single, try transaction.read(keys: all), try transaction.keyCount())
      }
      try expect(keys, is: there, "the keys of a scan in a body")
      try expect(single, is: all.map { present[$0.value] }, "read(key:) of each in a body")
      try expect(values, is: wanted.compactMap { present[$0.value] }, "read(keys:) in a body")
      return try expect(count, is: there.count, "keyCount() in a body")
    }
    func listed(_ entries: [(key: CacheKey, data: Data)], _ method: ReadMethod) throws {
      try expect(entries.sorted { $0.key < $1.key }, are: sorted, "\(method.call), sorted,")
    }
    func each<Answer: Equatable>(
      _ answer: (CacheKey) async throws -> Answer, is expected: (CacheKey) -> Answer
    ) async throws {
      for key in all {
        try expect(try await answer(key), is: expected(key), "\(method.call) of \(key)")
      }
    }
    func isThere(_ key: CacheKey) -> Bool { present[key.value] != nil }
    switch method {
    case .read: try await each({ try await engine.read(key: $0) }, is: { present[$0.value] })
    case .keyExists: try await each({ try await engine.keyExists($0) }, is: isThere)
    case .createdAt: try await each({ try await engine.createdAt(key: $0) != nil }, is: isThere)
    case .updatedAt: try await each({ try await engine.updatedAt(key: $0) != nil }, is: isThere)
    case .keyCount: try expect(try await engine.keyCount(), is: there.count, method.call)
    case .allKeys: try expect(try await engine.allKeys().sorted(), is: there, "\(method.call), sorted,")
    case .keysExist: try expect(try await engine.keysExist(all), is: wanted, method.call)
    case .readMany, .readDataAndKeys:
      try expect(try await method.found(of: all, in: engine), is: values, method.call)
    case .scan:
      try expect(try await engine.scan(.all, limit: nil), are: sorted, "scan(.all)")
      // Pages, with the same requests each time.
      try expect(
        try await engine.scan(.all, limit: 2), are: Array(sorted.prefix(2)), "scan(.all) up to 2 entries")
      try expect(
        try await engine.scan(.prefix("s"), limit: nil), are: sorted.filter { $0.key.value.hasPrefix("s") },
        "scan(.prefix(\"s\"))")
    case .readEntries:
      try listed(try await engine.readEntries(keys: all).map { ($0.key, $0.data) }, method)
    case .readAllEntries: try listed(try await engine.readAllEntries().map { ($0.key, $0.data) }, method)
    case .readAllDataAndKeys: try listed(try await engine.readAllDataAndKeys(), method)
    case .readAllData:
      let found = try await engine.readAllData()
      try expect(found.count, is: there.count, "the number of values of \(method.call)")
      try expect(Set(found) == Set(values), "\(method.call) returned other values than the stored ones")
    }
  }
}
