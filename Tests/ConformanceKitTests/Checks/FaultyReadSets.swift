@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that validate only some of what a body has read.

/// Runs bodies on a copy, and again if some of the keys that they have read have changed.
final class LooksAgainAtSome: FaultyEngine {
  typealias Choice = @Sendable ([CacheKey]) -> [CacheKey]
  let base: ReferenceEngine
  private let notesRequests: Bool
  private let (choose, chooseOfRequest): (Choice, Choice)

  /// - Parameters:
  ///   - notesRequests: Whether the keys of requests are noted. If not, a request counts as reading everything.
  ///   - choose: The keys that it compares again, of all those that it has noted.
  ///   - chooseOfRequest: The keys that it notes of a request.
  init(
    base: ReferenceEngine, ofRequests notesRequests: Bool, choosing choose: @escaping Choice,
    ofRequest chooseOfRequest: @escaping Choice = { $0 }
  ) {
    (self.base, self.notesRequests) = (base, notesRequests)
    (self.choose, self.chooseOfRequest) = (choose, chooseOfRequest)
  }

  private final class RecordingTransaction: ForwardingTransaction {
    private(set) var keys: [CacheKey] = []
    private(set) var hasReadOtherwise = false
    private let chooseOfRequest: Choice?
    init(_ base: any StorageTransaction, ofRequest choose: Choice?) {
      chooseOfRequest = choose
      super.init(base)
    }
    override func read(key: CacheKey) throws -> Data? {
      keys.append(key)
      return try base.read(key: key)
    }
    override func read(keys: [CacheKey]) throws -> [Data] {
      if let chooseOfRequest { self.keys += chooseOfRequest(keys) } else { hasReadOtherwise = true }
      return try base.read(keys: keys)
    }
    override func keyExists(_ key: CacheKey) throws -> Bool {
      keys.append(key)
      return try base.keyExists(key)
    }
    override func keyCount() throws -> Int {
      hasReadOtherwise = true
      return try base.keyCount()
    }
    override func allKeys() throws -> [CacheKey] {
      hasReadOtherwise = true
      return try base.allKeys()
    }
    override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
      hasReadOtherwise = true
      return try base.scan(range, limit: limit)
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy { [notesRequests, choose, chooseOfRequest] transaction in
      let noting = RecordingTransaction(transaction, ofRequest: notesRequests ? chooseOfRequest : nil)
      let result = try body(noting)
      return (result, (keys: choose(noting.keys), looksAtAll: noting.hasReadOtherwise))
    } until: { read, _, before, now in
      if read.looksAtAll, now != before { return false }
      return read.keys.allSatisfy { now[$0] == before[$0] }
    }
  }
}
