import Foundation

/// Keeps threads waiting, those in which a dump reports its progress, until a test has done something.
final class ThreadGate: Sendable {
  private let isOpen = DispatchSemaphore(value: 0)
  private let arrivals: AsyncStream<Void>
  private let arrival: AsyncStream<Void>.Continuation

  init() { (arrivals, arrival) = AsyncStream.makeStream() }

  /// Waits until the gate is open.
  func wait() {
    arrival.yield()
    isOpen.wait()
    isOpen.signal()
  }

  /// Returns when so many threads wait, or when nobody will come any more.
  func waitForArrivals(_ count: Int) async {
    var rest = count
    for await _ in arrivals {
      rest -= 1
      if rest == 0 { return }
    }
  }

  /// Lets everybody go on, from now on.
  func open() { isOpen.signal() }

  /// Says that nobody will come any more.
  func finish() { arrival.finish() }
}
