import StockroomCore
import StockroomLayers

/// An engine without some of the capabilities of another.
struct Lacking<Base: StorageEngine>: StorageLayer {
  let base: Base
  let capabilities: EngineCapabilities

  init(base: Base, capabilities missing: EngineCapabilities) {
    (self.base, capabilities) = (base, base.capabilities.subtracting(missing))
  }
}
