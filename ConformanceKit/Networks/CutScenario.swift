#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The steps that are performed while the connection of an engine is cut.
struct CutScenario: Sendable {
  typealias Contents = [CacheKey: Data]

  /// A call of the engine.
  enum Step: Sendable {
    case write([(key: CacheKey, data: Data)])
    case writeEntries([(key: CacheKey, data: Data)])
    case remove(CacheKey)
    case removeMany([CacheKey])
    /// With an existing key.
    case removeAll(CacheKey?)
    case apply([StorageOperation])
    /// A transaction that adds one to the number under a key.
    case increment(CacheKey)
    case readAll

    /// A description of the step.
    var phrase: String {
      switch self {
      case .write(let entries): entries.count == 1 ? "write(_:key:)" : "write(_:) of \(entries.count)"
      case .writeEntries: wayOfImporting.name
      case .remove: "remove(key:)"
      case .removeMany: "remove(keys:)"
      case .removeAll: "removeAllData()"
      case .apply(let operations): "apply(_:) of \(operations.count)"
      case .increment: "withTransaction(_:)"
      case .readAll: "readAllDataAndKeys()"
      }
    }

    var isRead: Bool { if case .readAll = self { true } else { false } }

    /// The last write of a step.
    var written: (key: CacheKey, data: Data)? {
      switch self {
      case .write(let entries), .writeEntries(let entries): entries.last
      case .apply(let operations): operations.compactMap(\.written).last
      default: nil
      }
    }

    /// A key that a step removes.
    var removedKey: CacheKey? {
      switch self {
      case .remove(let key): key
      case .removeMany(let keys): keys.first
      case .removeAll(let key): key
      case .apply(let operations): operations.compactMap(\.removed).first
      default: nil
      }
    }

    /// The contents after the step.
    func changed(_ contents: Contents) -> Contents {
      var contents = contents
      switch self {
      case .write(let entries), .writeEntries(let entries):
        for entry in entries { contents[entry.key] = entry.data }
      case .remove(let key): contents[key] = nil
      case .removeMany(let keys): for key in keys { contents[key] = nil }
      case .removeAll: contents = [:]
      case .apply(let operations): for operation in operations { operation.apply(to: &contents) }
      case .increment(let key): contents[key] = Self.next(contents[key])
      case .readAll: break
      }
      return contents
    }

    /// Performs the step. Returns the entries that it read.
    func perform(on engine: any StorageEngine) async throws -> Contents? {
      switch self {
      case .write(let entries):
        if entries.count == 1, let entry = entries.first {
          try await engine.write(entry.data, key: entry.key)
        } else {
          try await engine.write(entries)
        }
      case .writeEntries(let entries):
        try await wayOfImporting.write(EngineUnderTest(engine), entries)
      case .remove(let key): try await engine.remove(key: key)
      case .removeMany(let keys): try await engine.remove(keys: keys)
      case .removeAll: try await engine.removeAllData()
      case .apply(let operations): try await engine.apply(operations)
      case .increment(let key):
        try await engine.withTransaction { transaction in
          try transaction.write(Self.next(try transaction.read(key: key)), key: key)
        }
      case .readAll:
        return try contentsByKey(try await engine.readAllDataAndKeys())
      }
      return nil
    }

    private static func next(_ previous: Data?) -> Data {
      data(String((previous.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0) + 1))
    }
  }

  let steps: [Step]

  /// The steps for an engine with these capabilities.
  init(_ capabilities: EngineCapabilities) {
    let (a, b, c, sum) = (
      CacheKey(verbatim: "a"), CacheKey(verbatim: "b"), CacheKey(verbatim: "c"), CacheKey(verbatim: "sum")
    )
    let isAtomic = capabilities.contains(.atomicBatches)
    var steps: [Step] = [.write([(a, data("1"))])]
    if isAtomic { steps.append(.write([(b, data("2")), (c, noise(3_000)), (a, data("3"))])) }
    if capabilities.contains(.transactions) { steps.append(.increment(sum)) }
    steps.append(.readAll)
    steps.append(.apply([.remove(key: a)]))
    if isAtomic { steps.append(.apply([.remove(key: b), .write(data("4"), key: a), .remove(key: c)])) }
    if capabilities.contains(.transactions) { steps.append(.increment(sum)) }
    steps.append(.write([(b, data("5"))]))
    steps.append(.remove(b))
    steps.append(.readAll)
    if isAtomic { steps.append(.writeEntries([(b, data("6")), (c, data("7"))])) }
    if isAtomic { steps.append(.removeMany([a, c])) }
    steps.append(.readAll)
    // An engine that removes one entry after the other may continue where it was interrupted.
    steps.append(.removeAll(isAtomic ? b : nil))
    steps.append(.readAll)
    self.steps = steps
  }
}

/// The possible contents of the place, according to the steps.
struct PossibleContents {
  private var possibilities: Set<CutScenario.Contents> = [[:]]

  /// Records that the step has been acknowledged.
  mutating func add(_ step: CutScenario.Step) { possibilities = Set(possibilities.map(step.changed)) }

  /// Records that the step may or may not have happened.
  mutating func addMaybe(_ step: CutScenario.Step) {
    possibilities.formUnion(possibilities.map(step.changed))
  }

  /// Records that another engine has changed an entry.
  mutating func set(_ data: Data, for key: CacheKey) {
    possibilities = Set(
      possibilities.map { contents in
        var contents = contents
        contents[key] = data
        return contents
      })
  }

  /// Whether the key exists in all possible contents.
  func certainlyContains(_ key: CacheKey) -> Bool { possibilities.allSatisfy { $0[key] != nil } }

  /// Narrows the possibilities to the contents that were read. Returns whether they were possible.
  mutating func observe(_ contents: CutScenario.Contents) -> Bool {
    possibilities = possibilities.filter { $0 == contents }
    return !possibilities.isEmpty
  }

  /// A description of the possible contents.
  var description: String { possibilities.map(Self.describe).sorted().joined(separator: " or ") }

  static func describe(_ contents: CutScenario.Contents) -> String {
    let entries = contents.sorted { $0.key < $1.key }.map { key, data in
      let text = String(decoding: data.prefix(16), as: UTF8.self)
      return "\(key): \(text)\(data.count > 16 ? "… of \(data.count) bytes" : "")"
    }
    return "[\(entries.joined(separator: ", "))]"
  }
}
