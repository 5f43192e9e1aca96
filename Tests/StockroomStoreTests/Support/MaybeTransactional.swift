import StockroomCore
import StockroomLayers
import StockroomMemory

/// An engine with or without transactions.
struct MaybeTransactional: StorageLayer {
  let base: MemoryStorageEngine
  let hasTransactions: Bool

  var capabilities: EngineCapabilities {
    hasTransactions ? base.capabilities : base.capabilities.subtracting(.transactions)
  }
}
