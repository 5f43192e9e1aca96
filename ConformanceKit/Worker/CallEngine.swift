#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One call to an engine that stays open in the worker from one task to the next.
struct CallEngine: WorkerTask {
  enum Call: Codable, Sendable {
    case open
    /// Closes the engine and releases it.
    case close
    case write([SharedWork.Entry])
    /// Performs the operations by this method, or by the most specific one.
    case perform([SentOperation], by: ChangeMethod?)
    /// Sends all entries, after checking that the engine's other methods agree with them.
    case read
    /// Compares the results of all methods with the expected ones.
    case compare(ExpectedAnswers, first: Int)
    /// Performs one process's share of the work, and sends a message when it begins.
    case work(SharedWork, share: String)
    /// Transfers amounts between accounts that other processes use too, and sends a message now and then.
    case transfer(TransferWork, share: Int)
    /// Makes the changes, and sends a message after each round.
    case pass(PassingChanges)
    /// Imports the entries with their times.
    case importEntries([SentEntry])
  }

  let place: URL
  let call: Call

  init(_ call: Call, at place: URL) { (self.call, self.place) = (call, place) }

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable ([SentEntry]) throws -> Void
  ) async throws {
    if case .open = call {
      return OpenEngines.keep(try await open(place, makeEngine), at: place)
    }
    let engine = try OpenEngines.engine(at: place)
    switch call {
    case .open: break
    case .close:
      OpenEngines.forget(place)
      defer { engine.release() }
      try await engine.close()
    case .write(let entries): try await engine.write(entries.map { (CacheKey(verbatim: $0.key), $0.data) })
    case .perform(let operations, let method):
      try await engine.perform(operations.map(\.operation), by: method)
    case .read: try send(try await ExpectedContents.agreedEntries(of: engine).map(SentEntry.init))
    case .compare(let answers, let first): try await answers.verify(engine, first: first)
    case .work(let work, let share):
      try send([])
      try await work.perform(share, on: engine)
    case .transfer(let work, let share):
      for number in 0..<work.count {
        try await work.perform(number, of: share, on: engine)
        if number % 16 == 0 { try send([]) }
      }
    case .pass(let changes): try await changes.perform(on: engine) { try send([]) }
    case .importEntries(let entries): try await engine.writeEntries(entries.map(\.entry))
    }
  }
}

/// An operation in a form that can be sent.
enum SentOperation: Codable, Sendable {
  case write(SharedWork.Entry)
  case remove(String)
  case removeAll

  init(_ operation: StorageOperation) {
    switch operation {
    case .write(let data, let key): self = .write(.init(key: key.value, data: data))
    case .remove(let key): self = .remove(key.value)
    case .removeAll: self = .removeAll
    }
  }

  var operation: StorageOperation {
    switch self {
    case .write(let entry): .write(entry.data, key: CacheKey(verbatim: entry.key))
    case .remove(let key): .remove(key: CacheKey(verbatim: key))
    case .removeAll: .removeAll
    }
  }
}

/// The engines that are open in this worker.
enum OpenEngines {
  private static let engines = MutexProtected<[URL: EngineUnderTest]>([:])

  static func keep(_ engine: EngineUnderTest, at place: URL) { engines.withLock { $0[place] = engine } }

  static func forget(_ place: URL) { engines.withLock { $0[place] = nil } }

  /// - Throws: `StorageError` with code `closed` if no engine is open at the place.
  static func engine(at place: URL) throws -> EngineUnderTest {
    guard let engine = engines.withLock({ $0[place] }) else {
      throw StorageError(.closed, "The engine has not been opened in the worker.")
    }
    return engine
  }
}

/// Work that several processes perform concurrently.
struct SharedWork: Codable, Sendable {
  struct Entry: Codable, Sendable {
    let key: String
    let data: Data
  }

  /// How many batches each share has.
  let batchCount: Int

  /// The keys that every batch of every share writes, all with the same value.
  static let common = keys(6, prefix: "common-")

  /// A key that only one share uses. Each batch writes two of these.
  static func key(_ number: Int, of share: String) -> CacheKey { CacheKey(verbatim: "\(share)-\(number)") }

  /// Writes batches and reads them back. In between it writes and removes single entries.
  func perform(_ share: String, on engine: EngineUnderTest) async throws {
    for number in 0..<batchCount {
      let value = data("batch \(number) of \(share)")
      let own = [Self.key(2 * number, of: share), Self.key(2 * number + 1, of: share)]
      try await engine.write((Self.common + own).map { ($0, value) })
      let passing = Self.key(-1, of: share)
      try await engine.write(value, key: passing)
      try expect(
        try await engine.read(keys: own + [passing]), is: [value, value, value], "read(keys:) of own keys")
      try await engine.remove(key: passing)
    }
  }

  /// Fails unless every batch of all shares has been written.
  func verify(_ entries: [StorageEntry], by shares: [String], isAtomic: Bool) throws {
    let values = Dictionary(entries.map { ($0.key, $0.data) }) { first, _ in first }
    for share in shares {
      let own = (0..<2 * batchCount).map { Self.key($0, of: share) }
      for (index, key) in own.enumerated() {
        try expect(
          values[key], is: data("batch \(index / 2) of \(share)"), "\(key) after two processes had written")
      }
      let order = entries.filter { $0.key.value.hasPrefix("\(share)-") }.map(\.key)
      // An engine that implements a batch as single writes may not be able to order two of them.
      if isAtomic, order != own {
        throw Violation("the entries of \(share) were in the order \(describe(order))", rule: .r6)
      }
    }
    let expected = shares.count * 2 * batchCount + Self.common.count
    try expect(values.count, is: expected, "the number of entries after two processes had written")
    let last = Set(Self.common.map { values[$0] })
    if isAtomic, last.count != 1 {
      throw Violation(
        "of two batches in two processes, each was the last one for some keys: \(describe(Array(last)))",
        rule: .w4)
    }
  }
}
