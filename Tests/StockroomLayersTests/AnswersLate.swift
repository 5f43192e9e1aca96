import Foundation
import StockroomCore
import StockroomLayers

/// An engine that calls a hook after a read, before it returns the result.
struct AnswersLate<Base: StorageEngine>: StorageLayer {
  let base: Base
  let capabilities: EngineCapabilities
  private let others: @Sendable () async throws -> Void

  init(base: Base, after others: @escaping @Sendable () async throws -> Void) {
    (self.base, capabilities, self.others) = (base, base.capabilities, others)
  }

  private func late<Answer>(_ read: () async throws -> Answer) async throws -> Answer {
    let answer = try await read()
    try await others()
    return answer
  }

  func read(key: CacheKey) async throws -> Data? { try await late { try await base.read(key: key) } }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await late { try await base.readDataAndKeys(keys: keys) }
  }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await late { try await base.readAllDataAndKeys() }
  }

  func readAllEntries() async throws -> [StorageEntry] { try await late { try await base.readAllEntries() } }

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await late { try await base.readEntries(keys: keys) }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await late { try await base.scan(range, limit: limit) }
  }
}
