import Foundation

/// Blocks the threads in which dumps report their progress until a test opens it.
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

  /// Returns once this many threads have arrived, or after ``finish()``.
  func waitForArrivals(_ count: Int) async {
    var rest = count
    for await _ in arrivals {
      rest -= 1
      if rest == 0 { return }
    }
  }

  /// Releases the waiting threads, and those that arrive later.
  func open() { isOpen.signal() }

  /// Ends ``waitForArrivals(_:)`` even if too few threads have arrived.
  func finish() { arrival.finish() }
}
