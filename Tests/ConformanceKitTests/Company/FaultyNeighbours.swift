import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that are right beside one other, or outside of transactions.

extension FaultyEngineCase {
  static let besideOthers: [FaultyEngineCase] = [
    .init(persistent: .c2, "tells one other engine that values have changed") {
      base, place in TellsOneOther(base: base, place: place)
    },
    .init(
      persistent: .c2, "keeps a copy of everything for bodies that only read",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in KeepsACopyForReaders(base: base) },
  ]
}

/// Remembers values once there are three engines on a place, and tells the one that was opened last when it changes any.
final class TellsOneOther: InterceptingEngine {
  private struct Weak: Sendable { weak var engine: TellsOneOther? }
  private static let engines = MutexProtected<[String: [Weak]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let values = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    Self.engines.withLock { $0[place.path, default: []].append(Weak(engine: self)) }
  }
  private var all: [TellsOneOther] {
    Self.engines.withLock { [place] in ($0[place] ?? []).compactMap(\.engine) }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer {
      for engine in isChange ? [self, all.last { $0 !== self }].compactMap({ $0 }) : [] {
        engine.values.withLock { $0 = [:] }
      }
    }
    return try await work()
  }
  func read(key: CacheKey) async throws -> Data? {
    if all.count < 3 { return try await base.read(key: key) }
    if let value = values.withLock({ $0[key] }) { return value }
    let value = try await base.read(key: key)
    values.withLock { $0[key] = value }
    return value
  }
  func close() async throws {
    Self.engines.withLock { [place] in $0[place]?.removeAll { $0.engine === self } }
    try await base.close()
  }
}

/// Has bodies that only read run on a copy, which is made again when this engine has written, or after a moment.
final class KeepsACopyForReaders: InterceptingEngine {
  let base: ReferenceEngine
  private let copy = MutexProtected<(entries: [CacheKey: Data], until: ContinuousClock.Instant)?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer { if isChange { copy.withLock { $0 = nil } } }
    return try await work()
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    if let kept = copy.withLock({ $0 }), kept.until > .now {
      let transaction = CopyTransaction(kept.entries)
      if let result = try? body(transaction), transaction.end().isEmpty { return result }
    }
    let before = try await base.readAllDataAndKeys().map { ($0.key, $0.data) }
    let (result, operations) = try await runOnCopy(body)
    if operations.isEmpty {
      copy.withLock { $0 = (Dictionary(uniqueKeysWithValues: before), .now + .milliseconds(30)) }
      return result
    }
    return try await call(isChange: true) { [self] in try await base.withTransaction(body) }
  }
}
