import StockroomCore
import StockroomLayers
import StockroomMemory

/// An engine that has transactions or not.
struct MaybeTransactional: StorageLayer {
  let base: MemoryStorageEngine
  let hasTransactions: Bool

  var capabilities: EngineCapabilities {
    hasTransactions ? base.capabilities : base.capabilities.subtracting(.transactions)
  }
}
