import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory

/// A suite with an engine in memory whose values expire by a clock that is set by hand.
protocol ExpiringSuite {
  var base: MemoryStorageEngine { get }
  var clock: HandSetClock { get }
}

extension ExpiringSuite {
  var key: CacheKey { CacheKey(verbatim: "k") }
  var value: Data { Data("value".utf8) }

  func engine(after lifetime: Duration? = .seconds(60)) -> ExpiringEngine<MemoryStorageEngine> {
    base.expiring(after: lifetime, clock: clock.clock)
  }
}
