import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory

/// A layer that refuses to write some of the entries, even in the middle of a transaction.
struct RefusingLayer: ValueLayer {
  let base: MemoryStorageEngine
  private let refusals = Shared<[CacheKey: StorageError]>([:])

  init(_ base: MemoryStorageEngine) { self.base = base }

  /// Makes every write of this entry throw the error; nil ends that.
  func refuse(_ key: CacheKey, with error: StorageError?) { refusals.withLock { $0[key] = error } }

  func encode(_ value: Data, key: CacheKey) throws -> Data {
    if let error = refusals.withLock({ $0[key] }) { throw error }
    return value
  }

  func decode(_ stored: Data, key: CacheKey) throws -> Data { stored }
}
