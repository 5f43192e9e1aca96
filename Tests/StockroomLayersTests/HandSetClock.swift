import Foundation
import StockroomLayers
import Synchronization

/// A system clock that tests set by hand.
final class HandSetClock: Sendable {
  private let state = Mutex((time: Date(timeIntervalSince1970: 1_800_000_000), uptime: Duration.zero))

  var now: Date { state.withLock { $0.time } }

  /// Advances the clock by the given number of seconds.
  func advance(_ seconds: Int) {
    state.withLock { $0 = ($0.time + TimeInterval(seconds), $0.uptime + .seconds(seconds)) }
  }

  /// Sets the clock forward, or back if negative.
  func set(forwardBy seconds: Int) { state.withLock { $0.time += TimeInterval(seconds) } }

  var clock: ExpiryClock {
    ExpiryClock(now: { self.now }, uptime: { self.state.withLock { $0.uptime } })
  }
}
