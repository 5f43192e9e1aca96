import StockroomCore
import StockroomLayers

/// Another engine without some of its capabilities.
struct WithoutCapabilities<Base: StorageEngine>: StorageLayer {
  let base: Base
  let capabilities: EngineCapabilities

  init(base: Base, capabilities missing: EngineCapabilities) {
    (self.base, capabilities) = (base, base.capabilities.subtracting(missing))
  }
}
