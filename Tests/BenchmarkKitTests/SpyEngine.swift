import Foundation
import StockroomCore

/// An engine in memory that logs writes, removals and `close()`, and can return wrong results or fail.
final class SpyEngine: StorageEngine {
  enum Flaw: Sendable, CaseIterable {
    case none, losesWrites, truncatesValues, answersNil, scansBackwards, miscounts, throwsOnRead, keepsRemoved
    case failsToClose, repeatsFirstPage, heedsCancellation
  }

  /// A log that several engines of a test can share.
  final class Log: Sendable {
    private let state = MutexProtected<[String]>([])

    var lines: [String] { state.withLock { $0 } }
    func note(_ line: String) { state.withLock { $0.append(line) } }
  }

  private let entries = MutexProtected<[CacheKey: (data: Data, createdAt: Date, updatedAt: Date)]>([:])
  private let name: String
  private let flaw: Flaw
  private let log: Log?
  let capabilities: EngineCapabilities

  init(
    _ name: String = "spy", flaw: Flaw = .none, log: Log? = nil, capabilities: EngineCapabilities = []
  ) {
    self.capabilities = capabilities
    self.name = name
    self.flaw = flaw
    self.log = log
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    log?.note("\(name) write")
    if flaw == .losesWrites { return }
    let now = Date()
    entries.withLock { $0[key] = (data, $0[key]?.createdAt ?? now, now) }
  }

  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    if flaw == .answersNil { return nil }
    if flaw == .throwsOnRead { throw StorageError(.io, "The spy does not read.") }
    let data = entries.withLock { $0[key]?.data }
    return flaw == .truncatesValues ? data.map { Data($0.dropLast()) } : data
  }

  func remove(key: CacheKey) async throws {
    try key.validate()
    if flaw == .heedsCancellation { try Task.checkCancellation() }
    log?.note("\(name) remove")
    if flaw == .keepsRemoved { return }
    entries.withLock { _ = $0.removeValue(forKey: key) }
  }

  func allKeys() async throws -> [CacheKey] { entries.withLock { Array($0.keys) } }

  func keyCount() async throws -> Int {
    try await allKeys().count + (flaw == .miscounts ? 1 : 0)
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let range = flaw == .repeatsFirstPage ? .all : range
    let found = entries.withLock { entries in
      entries.filter { range.contains($0.key) }.sorted { $0.key < $1.key }.map {
        (key: $0.key, data: $0.value.data)
      }
    }
    let page = found.prefix(limit ?? .max)
    return flaw == .scansBackwards ? page.reversed() : Array(page)
  }

  func createdAt(key: CacheKey) async throws -> Date? { entries.withLock { $0[key]?.createdAt } }
  func updatedAt(key: CacheKey) async throws -> Date? { entries.withLock { $0[key]?.updatedAt } }

  func close() async throws {
    log?.note("\(name) close")
    if flaw == .failsToClose { throw StorageError(.io, "The spy does not close.") }
  }
}
