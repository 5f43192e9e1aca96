import Dispatch
import Foundation
import StockroomCore

/// Records whether its `deinit` runs on the main actor.
final class DeinitRecorder: Codable, Sendable, Identifiable {
  struct Log {
    var deinits = 0
    var deinitsOnMainActor = 0
  }

  static let log = MutexProtected(Log())
  static let mainKey = DispatchSpecificKey<Bool>()

  let id: String

  init(_ id: String) { self.id = id }

  deinit {
    let isOnMainActor = DispatchQueue.getSpecific(key: Self.mainKey) == true
    Self.log.withLock { log in
      log.deinits += 1
      if isOnMainActor { log.deinitsOnMainActor += 1 }
    }
  }

  static func startLog() {
    markMainActor()
    log.withLock { $0 = Log() }
  }

  static func markMainActor() { DispatchQueue.main.setSpecific(key: mainKey, value: true) }
}

/// An engine that stores nothing, so that only a store retains the items.
struct NullEngine: StorageEngine {
  func write(_ data: Data, key: CacheKey) async throws {}
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {}
  func read(key: CacheKey) async throws -> Data? { nil }
  func remove(key: CacheKey) async throws {}
  func allKeys() async throws -> [CacheKey] { [] }
  func createdAt(key: CacheKey) async throws -> Date? { nil }
  func updatedAt(key: CacheKey) async throws -> Date? { nil }
  func apply(_ operations: [StorageOperation]) async throws {}
}
