@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that overlook some conflicts between bodies and other changes.

/// Runs bodies on a copy, and again if it finds that others have changed what the body has read or written.
final class LooksForConflicts: FaultyEngine {
  /// Which changes by others it detects.
  enum Look {
    /// Changes of what the body writes. Only one body runs at a time, so that they cannot overlook each other.
    case whatIsWritten
    /// Changes of what the body has read one by one, and new or changed entries anywhere: removed ones have left nothing
    /// that it could find.
    case whatIsThere
    /// Changes of what the body has read one by one, and keys that were added or removed.
    case whichKeysAreThere
  }
  private final class NotesReads: ForwardingTransaction {
    private(set) var keys: Set<CacheKey> = []
    override func read(key: CacheKey) throws -> Data? {
      keys.insert(key)
      return try base.read(key: key)
    }
    override func keyExists(_ key: CacheKey) throws -> Bool {
      keys.insert(key)
      return try base.keyExists(key)
    }
  }
  let base: ReferenceEngine
  private let look: Look
  private let turns = AsyncSemaphore(width: 1)
  init(base: ReferenceEngine, _ look: Look) { (self.base, self.look) = (base, look) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    guard look == .whatIsWritten else { return try await runUntilAlone(body) }
    await turns.enter()
    defer { turns.leave() }
    return try await runUntilAlone(body)
  }

  private func runUntilAlone<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy {
      let noting = NotesReads($0)
      let result = try body(noting)
      return (result, noting.keys)
    } until: { [look] read, operations, before, now in
      switch look {
      case .whatIsWritten: return operations.allSatisfy { Self.isUnchanged($0, before, now) }
      case .whatIsThere: if !now.allSatisfy({ before[$0.key] == $0.value }) { return false }
      case .whichKeysAreThere: if Set(now.keys) != Set(before.keys) { return false }
      }
      return read.allSatisfy { now[$0] == before[$0] }
    }
  }

  private static func isUnchanged(
    _ operation: StorageOperation, _ before: [CacheKey: Data], _ now: [CacheKey: Data]
  ) -> Bool {
    guard let key = operation.keyOfChange else { return before == now }
    return before[key] == now[key]
  }
}

/// Runs bodies on a copy, and again if others have changed anything, except bodies that make certain changes.
struct RunsAgainUnless: FaultyEngine {
  enum Exempt { case removals, imports }
  private final class NotesImports: ForwardingTransaction {
    private(set) var hasImported = false
    override func writeEntry(_ entry: StorageEntry) throws {
      try base.writeEntry(entry)
      hasImported = true
    }
  }
  let base: ReferenceEngine
  let exempt: Exempt

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy {
      let noting = NotesImports($0)
      let result = try body(noting)
      return (result, noting.hasImported)
    } until: { [exempt] hasImported, operations, before, now in
      if now == before { return true }
      if exempt == .imports { return hasImported }
      return operations.allSatisfy { if case .write = $0 { false } else { true } }
    }
  }
}

/// Runs bodies on a copy, and again if an entry has changed, but not for a new one of another engine on the place that
/// the body has only searched for: it locks ranges for its own bodies only.
final class OverlooksNewKeysOfOthers: FaultyEngine {
  private final class NotesReads: ForwardingTransaction {
    private(set) var keys: Set<CacheKey> = []
    override func read(key: CacheKey) throws -> Data? {
      keys.insert(key)
      return try base.read(key: key)
    }
    override func read(keys: [CacheKey]) throws -> [Data] {
      self.keys.formUnion(keys)
      return try base.read(keys: keys)
    }
    override func keyExists(_ key: CacheKey) throws -> Bool {
      keys.insert(key)
      return try base.keyExists(key)
    }
  }
  private static let written = MutexProtected<[String: [(engine: Int, key: CacheKey)]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  /// The keys that bodies of other engines have written after this number of writes.
  private func writtenByOthers(since count: Int) -> Set<CacheKey> {
    Self.written.withLock { [place, number] written in
      Set((written[place] ?? []).dropFirst(count).filter { $0.engine != number }.map(\.key))
    }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    while true {
      let count = Self.written.withLock { [place] in $0[place]?.count ?? 0 }
      let before = Dictionary(
        uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
      let (outcome, operations) = try await runOnCopy { transaction in
        let noting = NotesReads(transaction)
        let result = try body(noting)
        return (result, noting.keys)
      }
      let (result, keys) = outcome
      if operations.isEmpty { return result }
      // The check and the commit are one step.
      let isDone = try await base.withTransaction { [self] transaction in
        let overlooked = writtenByOthers(since: count).subtracting(before.keys).subtracting(keys)
        let now = try transaction.scan(.all, limit: nil).filter { !overlooked.contains($0.key) }
        guard now.count == before.count, now.allSatisfy({ before[$0.key] == $0.data }) else { return false }
        try transaction.apply(operations)
        return true
      }
      guard isDone else { continue }
      let new = operations.compactMap { operation -> (engine: Int, key: CacheKey)? in
        if case .write(_, let key) = operation { (engine: number, key: key) } else { nil }
      }
      Self.written.withLock { [place] in $0[place, default: []] += new }
      return result
    }
  }
}

/// Its bodies read a snapshot, but single reads return what transactions of other engines have committed since.
final class ReadsWritesOfOthers: FaultyEngine {
  private final class LiveTransaction: ForwardingTransaction {
    private let live: (CacheKey) throws -> Data??
    init(_ base: any StorageTransaction, live: @escaping (CacheKey) throws -> Data??) {
      self.live = live
      super.init(base)
    }
    override func read(key: CacheKey) throws -> Data? {
      let value = try base.read(key: key)
      return try live(key) ?? value
    }
  }
  private static let commits = MutexProtected<[String: [Int]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  /// The number of transactions of other engines.
  private var commitsOfOthers: Int {
    Self.commits.withLock { [place, number] commits in (commits[place] ?? []).count { $0 != number } }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let result = try await base.withTransaction { [self] transaction in
      let before = commitsOfOthers
      return try body(
        LiveTransaction(transaction) { [self] key in
          if commitsOfOthers == before { return nil }
          return .some(try base.everything().first { $0.key == key }?.data)
        })
    }
    Self.commits.withLock { [place, number] in $0[place, default: []].append(number) }
    return result
  }
}

/// Runs bodies on a copy, and aborts a body at the first write of an entry that others have changed: that write and all
/// later ones throw `conflict`, or only that one.
struct AbortsAtWrites: FaultyEngine {
  /// What happens if an aborted body continues and returns.
  enum End {
    /// The call throws `conflict` too, as it should.
    case throwsConflict
    /// The call returns, and nothing has been done.
    case returns
    /// The call returns, and what the body has written since has been applied, outside of any transaction.
    case commitsTheRest
  }

  private final class AbortedTransaction: ForwardingTransaction {
    private let end: End
    private let hasChanged: (CacheKey) throws -> Bool
    private(set) var isAborted = false
    /// The writes since it was aborted.
    private(set) var rest: [StorageOperation] = []
    init(_ base: any StorageTransaction, _ end: End, hasChanged: @escaping (CacheKey) throws -> Bool) {
      (self.end, self.hasChanged) = (end, hasChanged)
      super.init(base)
    }
    override func write(_ data: Data, key: CacheKey) throws {
      let wasAborted = isAborted
      if try !wasAborted && hasChanged(key) { isAborted = true }
      if isAborted, !wasAborted || end == .returns {
        throw StorageError(.conflict, "Others have changed \(key).")
      }
      try base.write(data, key: key)
      if isAborted { rest.append(.write(data, key: key)) }
    }
  }

  let base: ReferenceEngine
  let end: End

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    while true {
      let before = Dictionary(
        uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
      let (outcome, operations) = try await runOnCopy { [base, end] transaction in
        let aborting = AbortedTransaction(transaction, end) { key in
          try base.everything().first { $0.key == key }?.data != before[key]
        }
        let result = try body(aborting)
        if aborting.isAborted, end == .throwsConflict {
          throw StorageError(.conflict, "Others have changed what the body writes.")
        }
        return (result, aborting.isAborted ? aborting.rest : nil)
      }
      let (result, rest) = outcome
      if let rest {
        try await base.apply(rest)
        return result
      }
      if operations.isEmpty { return result }
      // The check and the commit are one step.
      let isDone = try await base.withTransaction { transaction in
        let now = try transaction.scan(.all, limit: nil)
        guard now.count == before.count, now.allSatisfy({ before[$0.key] == $0.data }) else { return false }
        try transaction.apply(operations)
        return true
      }
      if isDone { return result }
    }
  }
}
