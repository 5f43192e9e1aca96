#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The result of a call.
enum CommandAnswer: Sendable {
  case nothing
  case value(Data?)
  case values([Data])
  case pairs([(key: CacheKey, data: Data)])
  case keys([CacheKey])
  case exists(Bool)
  case count(Int)
  case date(Date?)
  case entries([StorageEntry])
  /// The results of the reads in a body, and whether it threw after them.
  case body([CommandAnswer], threw: Bool)
  case threw(CallFailure)
}

extension Command {
  /// Makes the call.
  ///
  /// - Parameter engine: Replaced if the call reopens it.
  func perform(on engine: inout EngineUnderTest, reopen: () async throws -> EngineUnderTest) async throws
    -> CommandAnswer
  {
    do {
      switch self {
      case .write(let entry): try await engine.write(entry.value.data, key: entry.key)
      case .writeMany(let entries): try await engine.write(entries.map { ($0.key, $0.value.data) })
      case .writeEntries(let entries): try await engine.writeEntries(entries.map(\.storageEntry))
      case .remove(let key): try await engine.remove(key: key)
      case .removeMany(let keys): try await engine.remove(keys: keys)
      case .removeAll: try await engine.removeAllData()
      case .apply(let steps): try await engine.apply(steps.compactMap(\.operation))
      case .transaction(let steps, let isThrowing):
        return .body(
          try await engine.withTransaction { transaction in
            let answers = try steps.run(in: transaction)
            if isThrowing { throw BodyThrew(answers: answers) }
            return answers
          }, threw: false)
      case .ask(let question): return try await question.ask(engine)
      case .reopen(let closing):
        defer { engine.release() }
        if closing { try await engine.close() }
      case .wait: try await letClockAdvance()
      }
      if case .reopen = self { engine = try await reopen() }
      return .nothing
    } catch let failure as CallFailure {
      if let thrown = failure.error as? BodyThrew { return .body(thrown.answers, threw: true) }
      // A call in a cancelled task says nothing about the engine.
      try Task.checkCancellation()
      return .threw(failure)
    }
  }
}

extension CommandStep {
  /// Nil for steps that batches do not have.
  var operation: StorageOperation? {
    switch self {
    case .write(let entry): .write(entry.value.data, key: entry.key)
    case .writeEntry: nil
    case .remove(let key): .remove(key: key)
    case .removeAll: .removeAll
    }
  }
}

extension CommandQuery {
  fileprivate func ask(_ engine: EngineUnderTest) async throws -> CommandAnswer {
    switch self {
    case .read(let key): .value(try await engine.read(key: key))
    case .readMany(let keys): .values(try await engine.read(keys: keys))
    case .readDataAndKeys(let keys): .pairs(try await engine.readDataAndKeys(keys: keys))
    case .readEntries(let keys): .entries(try await engine.readEntries(keys: keys))
    case .readAllData: .values(try await engine.readAllData())
    case .readAllDataAndKeys: .pairs(try await engine.readAllDataAndKeys())
    case .readAllEntries: .entries(try await engine.readAllEntries())
    case .keyExists(let key): .exists(try await engine.keyExists(key))
    case .keysExist(let keys): .keys(try await engine.keysExist(keys))
    case .keyCount: .count(try await engine.keyCount())
    case .allKeys: .keys(try await engine.allKeys())
    case .createdAt(let key): .date(try await engine.createdAt(key: key))
    case .updatedAt(let key): .date(try await engine.updatedAt(key: key))
    case .scan(let range, let limit): .pairs(try await engine.scan(range, limit: limit))
    }
  }
}

extension ReferenceModel {
  /// The expected result of the read. Lists with unspecified order are in byte order.
  func answer(to question: CommandQuery) -> CommandAnswer {
    func pairs(_ keys: [CacheKey]) -> [(key: CacheKey, data: Data)] {
      keys.compactMap { key in self[key].map { (key, $0.data) } }
    }
    switch question {
    case .read(let key): return .value(self[key]?.data)
    case .readMany(let keys): return .values(pairs(keys).map(\.data))
    case .readDataAndKeys(let keys): return .pairs(pairs(keys))
    case .readAllData: return .values(entries.values.map(\.data).sorted { $0.lexicographicallyPrecedes($1) })
    case .readAllDataAndKeys: return .pairs(pairs(entries.keys.sorted()))
    case .readEntries(let keys): return .pairs(pairs(keysInOrder.filter(Set(keys).contains)))
    case .readAllEntries: return .pairs(pairs(keysInOrder))
    case .keyExists(let key): return .exists(self[key] != nil)
    case .keysExist(let keys): return .keys(keys.filter { self[$0] != nil })
    case .keyCount: return .count(entries.count)
    case .allKeys: return .keys(entries.keys.sorted())
    case .createdAt(let key): return .date(self[key]?.created.window.lowerBound)
    case .updatedAt(let key): return .date(self[key]?.updated.window.lowerBound)
    case .scan(let range, let limit):
      return .pairs(pairs(Array(entries.keys.filter(range.contains).sorted().prefix(max(0, limit ?? .max)))))
    }
  }
}
