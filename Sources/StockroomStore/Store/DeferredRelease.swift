import StockroomCore

/// Retains the items that a store has replaced for a second, and then releases them off the main actor.
///
/// A view retains the array that it shows until it is updated. If that were the last reference, releasing the items would
/// take place on the main actor; with a million items that takes tens of milliseconds.
final class DeferredRelease<Item: StorableItem>: Sendable {
  /// The previous contents: the items, and the results of queries.
  private struct Retained: Sendable {
    var table = ItemTable<Item>()
    var queries: [any Sendable] = []

    var isSmall: Bool { table.isSmall && queries.isEmpty }
  }

  private struct State {
    var number = 0
    var retained = Retained()
  }

  private let state = MutexProtected(State())

  deinit {
    let retained = state.withLock { Swift.exchange(&$0.retained, with: Retained()) }
    if !retained.isSmall { releaseInBackground(consume retained) }
  }

  /// Retains a replaced table and replaced query results for a second, or until the next call. Does nothing if they are small.
  ///
  /// Releases the contents that the last call retained before it returns, so do not call this on the main actor.
  func retain(_ table: consuming ItemTable<Item>, _ queries: consuming [any Sendable]) {
    let retained = Retained(table: table, queries: queries)
    if retained.isSmall { return }
    let number = exchange(with: retained)
    Task.detached(priority: .utility) { [weak self] in
      // Never throws: the task is not cancelled.
      try? await Task.sleep(for: .seconds(1))
      if self?.state.withLock({ $0.number }) == number { _ = self?.exchange(with: Retained()) }
    }
  }

  /// Retains new contents and releases the previous ones. Returns a number that identifies the new ones.
  private func exchange(with retained: consuming Retained) -> Int {
    var next: Retained? = retained
    let (previous, number) = state.withLock { state in
      let previous = state.retained
      state.retained = next.take() ?? Retained()
      state.number += 1
      return (previous, state.number)
    }
    // Outside of the lock: the `deinit` of an item may use the store.
    withExtendedLifetime(previous) {}
    return number
  }
}

/// Releases a value in a background task.
func releaseInBackground<Value: Sendable>(_ value: consuming Value) {
  // The value is moved into the task. If the task only captured it, a fast task could end first, so that the caller would hold the
  // last reference and release it.
  let moved = MutexProtected<Value?>(consume value)
  Task.detached(priority: .utility) { _ = moved.withLock { $0.take() } }
}
