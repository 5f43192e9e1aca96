import StockroomCore

/// Sends elements to any number of streams. Sending never waits for a reader.
///
/// The streams end when the broadcaster is gone.
final class Broadcaster<Element: Sendable>: Sendable {
  private struct State {
    var nextID = 0
    var continuations: [Int: AsyncStream<Element>.Continuation] = [:]
  }

  private let state = MutexProtected(State())

  deinit { for continuation in state.withLock({ $0.continuations.values }) { continuation.finish() } }

  /// A stream of `first` and of everything that is sent from now on.
  ///
  /// No element is between the two as long as nobody sends while this is called.
  func stream(
    startingWith first: Element, bufferingPolicy: AsyncStream<Element>.Continuation.BufferingPolicy
  ) -> AsyncStream<Element> {
    let (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: bufferingPolicy)
    continuation.yield(first)
    let id = state.withLock { state in
      defer { state.nextID += 1 }
      state.continuations[state.nextID] = continuation
      return state.nextID
    }
    continuation.onTermination = { [weak self] _ in
      // Let go of outside the lock, since a continuation may free what others wait for.
      _ = self?.state.withLock { $0.continuations.removeValue(forKey: id) }
    }
    return stream
  }

  /// Puts the element into the buffer of every stream. O(streams).
  func send(_ element: Element) {
    for continuation in state.withLock({ $0.continuations.values }) { continuation.yield(element) }
  }
}
