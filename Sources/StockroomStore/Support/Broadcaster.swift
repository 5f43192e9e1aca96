import StockroomCore

/// Sends elements to any number of streams, without waiting for their readers.
///
/// The streams end when the broadcaster is released.
final class Broadcaster<Element: Sendable>: Sendable {
  private struct State {
    var nextID = 0
    var continuations: [Int: AsyncStream<Element>.Continuation] = [:]
  }

  private let state = MutexProtected(State())

  deinit { for continuation in state.withLock({ $0.continuations.values }) { continuation.finish() } }

  /// A stream of `first` and of all elements that are sent from now on.
  ///
  /// The caller must ensure that no element is sent during the call.
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
      // Released outside of the lock, since that may run arbitrary code.
      _ = self?.state.withLock { $0.continuations.removeValue(forKey: id) }
    }
    return stream
  }

  /// Puts the element into the buffer of every stream. O(streams).
  ///
  /// - Returns: The elements that full buffers have dropped, for the caller to release.
  func send(_ element: Element) -> [Element] {
    var dropped: [Element] = []
    for continuation in state.withLock({ $0.continuations.values }) {
      if case .dropped(let old) = continuation.yield(element) { dropped.append(old) }
    }
    return dropped
  }
}
