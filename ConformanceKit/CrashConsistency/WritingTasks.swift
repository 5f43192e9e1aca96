#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Tasks whose process is killed while it works, and one that reads the contents afterwards.

/// An entry in a form that can be sent.
struct SentEntry: Codable, Sendable {
  let key: String
  let data: Data
  let createdAt: Date
  let updatedAt: Date

  init(_ entry: StorageEntry) {
    (key, data) = (entry.key.value, entry.data)
    (createdAt, updatedAt) = (entry.createdAt, entry.updatedAt)
  }

  var entry: StorageEntry {
    StorageEntry(key: CacheKey(verbatim: key), data: data, createdAt: createdAt, updatedAt: updatedAt)
  }
}

/// Opens the engine, reads all entries when no operation is in progress any more, checks that the other
/// methods agree with them, calls verify(), closes the engine and sends the entries in order.
struct ReadEverything: WorkerTask {
  let place: URL
  /// Whether to report progress by also sending empty messages now and then.
  var reportsProgress = false

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable ([SentEntry]) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    try await ExpectedContents.settle(engine)
    let note: @Sendable () throws -> Void = { [reportsProgress] in if reportsProgress { try send([]) } }
    let entries = try await ExpectedContents.agreedEntries(of: engine, noting: note)
    try await engine.verify()
    try note()
    try await engine.close()
    engine.release()
    for start in stride(from: 0, to: entries.count, by: 64) {
      try send(entries[start..<min(start + 64, entries.count)].map(SentEntry.init))
    }
  }
}

/// Calls to an engine, numbered from 1, that follow from a seed and their number.
struct NumberedSteps: Codable, Sendable {
  enum Kind: Codable, Sendable, Equatable {
    /// Batches through every method that takes one, and single calls between them.
    case batches
    /// Batches of more small writes and removals than an engine is likely to process at once.
    case largeBatches(of: Int)
    /// Single writes and removals.
    case single
    /// Transactions that each perform the operations of a batch and read back what they have written.
    case transactions
    /// Imports of few or many entries, and removals of those imported earlier.
    case imports
    /// Very many changes of few keys with small values: see ``LongLife``.
    case life
  }

  let batches: NumberedBatches
  let kind: Kind

  /// The operations of the step with this number.
  func operations(of number: Int) -> [StorageOperation] {
    switch (kind, number % 8) {
    case (.life, _): LongLife.operations(of: number, seed: batches.seed)
    case (.single, _): [singleOperation(number)]
    case (.largeBatches(let count), _): manyOperations(number, count)
    case (.transactions, _): batches.operations(of: number)
    case (.imports, _): importedEntries(number)
    case (.batches, 3): someRemovals(number)
    case (.batches, 1), (.batches, 6): Array(batches.operations(of: number).suffix(1))
    case (.batches, _): batches.operations(of: number)
    }
  }

  /// Performs the step with the most specific method.
  func perform(_ number: Int, on engine: EngineUnderTest) async throws {
    let operations = operations(of: number)
    if kind == .transactions { return try await perform(operations, number, on: engine) }
    let writes = operations.compactMap(\.written)
    if kind == .imports, !writes.isEmpty { return try await wayOfImporting.write(engine, writes) }
    try await engine.perform(operations)
  }

  /// Performs the operations in a transaction that also reads what it writes, and imports some of them.
  private func perform(
    _ operations: [StorageOperation], _ number: Int, on engine: EngineUnderTest
  ) async throws {
    try await engine.withTransaction { transaction in
      let last = try transaction.number(NumberedBatches.marker)
      guard last < number else {
        throw Violation(
          "before step \(number), a transaction read that step \(last) had been done", rule: .t1)
      }
      for operation in operations {
        // Importing an existing key would change its createdAt.
        if number % 3 == 2, case .write(let data, let key) = operation, try !transaction.keyExists(key) {
          let now = Date()
          try transaction.writeEntry(StorageEntry(key: key, data: data, createdAt: now, updatedAt: now))
        } else {
          try transaction.apply([operation])
        }
      }
      let own = try transaction.number(NumberedBatches.marker)
      try expect(own, is: number, "the number that a transaction had written")
    }
  }

  private func someRemovals(_ number: Int) -> [StorageOperation] {
    var random = SeededRandom(seed: ~batches.seed, number: number)
    return (0..<12).map { _ in .remove(key: NumberedBatches.key(random.next(upTo: NumberedBatches.keyCount)))
    }
  }

  /// The entries to import in a step or, in every third step, the removals of entries imported earlier. No key is
  /// imported twice: an import changes its times.
  private func importedEntries(_ number: Int) -> [StorageOperation] {
    func keys(of step: Int) -> [CacheKey] {
      ConformanceKit.keys([1, 12, 40, 300][(step + 4) % 4], prefix: "import \(step)/")
    }
    if number % 3 == 0 { return [number - 5, number - 4].flatMap(keys).map { .remove(key: $0) } }
    var random = SeededRandom(seed: ~batches.seed, number: number)
    return keys(of: number).map {
      .write(NumberedBatches.value("import \(number), \($0.value)", &random), key: $0)
    }
  }

  /// Writes many entries, overwrites them, removes them by their keys, and removes everything.
  private func manyOperations(_ number: Int, _ count: Int) -> [StorageOperation] {
    switch number % 6 {
    case 3: keys(count).map { .remove(key: $0) }
    case 0: [.removeAll]
    default: keys(count).map { .write(data("large \(number), \($0.value)"), key: $0) }
    }
  }

  /// A write or a removal of one of a few keys, so that a removed key usually exists.
  private func singleOperation(_ number: Int) -> StorageOperation {
    var random = SeededRandom(seed: ~batches.seed, number: number)
    let key = NumberedBatches.key(random.next(upTo: 50))
    if random.next(upTo: 5) < 2 { return .remove(key: key) }
    return .write(NumberedBatches.value("write \(number)", &random), key: key)
  }
}

extension StorageOperation {
  var isRemovalOfEverything: Bool { if case .removeAll = self { true } else { false } }

  var written: (key: CacheKey, data: Data)? {
    if case .write(let data, let key) = self { (key, data) } else { nil }
  }

  var removed: CacheKey? {
    if case .remove(let key) = self { key } else { nil }
  }

  /// Applies the operation to a dictionary.
  package func apply(to contents: inout [CacheKey: Data]) {
    switch self {
    case .write(let data, let key): contents[key] = data
    case .remove(let key): contents[key] = nil
    case .removeAll: contents = [:]
    }
  }
}

/// Opens the engine, sends 0, and performs step after step forever. Sends the number of each acknowledged
/// step.
struct WriteSteps: WorkerTask {
  let place: URL
  let steps: NumberedSteps
  let first: Int

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine, send: @Sendable (Int) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    try send(0)
    for number in first... {
      try await steps.perform(number, on: engine)
      try send(number)
    }
  }
}

/// The work of several concurrent writers. Each has its own keys; its operations, which write or remove one key each,
/// are numbered from 1.
struct ConcurrentWriters: Codable, Sendable {
  let seed: UInt64
  let writerCount: Int

  /// The prefix of all keys of a writer.
  func prefix(of writer: Int) -> String { "writer/\(writer)/" }

  func operation(_ number: Int, of writer: Int) -> StorageOperation {
    var random = SeededRandom(seed: seed &+ UInt64(truncatingIfNeeded: writer) << 32, number: number)
    let name = "\(prefix(of: writer))\(random.next(upTo: 30))"
    let key = name.hasSuffix("/7") ? longKey(name) : key(name)
    if random.once(in: 5) { return .remove(key: key) }
    return .write(NumberedBatches.value("writer \(writer), write \(number)", &random), key: key)
  }

  /// The method for an operation. The methods alternate, because an engine may combine only the calls of some methods
  /// into one commit.
  func method(
    _ number: Int, for operation: StorageOperation, _ capabilities: EngineCapabilities
  ) -> ChangeMethod {
    var methods: [ChangeMethod] =
      operation.written == nil ? [.remove, .removeMany, .apply] : [.write, .writeMany, .apply]
    if capabilities.contains(.transactions) { methods.append(.transaction) }
    return methods[number % methods.count]
  }
}

/// An acknowledged operation of one of the writers.
struct WriterMessage: Codable, Sendable {
  let writer: Int
  let number: Int
}

/// Opens the engine and writes in several concurrent tasks, until the process is killed. Sends the acknowledged
/// operations.
struct WriteInTasks: WorkerTask {
  let place: URL
  let tasks: ConcurrentWriters
  /// The number of each writer's first operation.
  let first: [Int]

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable (WriterMessage) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    try await withoutActuallyEscaping(send) { send in
      _ = try await gather(0..<tasks.writerCount) { writer in
        for number in first[writer]... {
          let operation = tasks.operation(number, of: writer)
          let method = tasks.method(number, for: operation, engine.capabilities)
          try await engine.perform([operation], by: method)
          try send(WriterMessage(writer: writer, number: number))
        }
      }
    }
  }
}
