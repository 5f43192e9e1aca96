import StockroomCore
import StockroomMemory
import TestFixtures

/// An engine with the six required methods and no capabilities.
struct MinimalEngine: MinimalForwardingEngine {
  let base: any StorageEngine

  init(_ base: any StorageEngine = MemoryStorageEngine()) { self.base = base }
}
