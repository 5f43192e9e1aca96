import StockroomCore

/// Retains the items that a store has replaced for a second, and then releases them off the main actor.
///
/// A view retains the array that it shows until it is updated. If that were the last reference, releasing the items would
/// take place on the main actor; with a million items that takes tens of milliseconds.
final class DeferredRelease<Item: StorableItem>: Sendable {
  private struct State {
    var number = 0
    var table = ItemTable<Item>()
  }

  private let state = MutexProtected(State())

  deinit {
    let table = state.withLock { Swift.exchange(&$0.table, with: ItemTable()) }
    if !table.isSmall { releaseInBackground(consume table) }
  }

  /// Retains the table for a second, or until the next call, unless it is small. Releases the previous one before it
  /// returns, so do not call this on the main actor.
  func retain(_ table: consuming ItemTable<Item>) {
    if table.isSmall { return }
    let number = exchange(with: table)
    Task.detached(priority: .utility) { [weak self] in
      // Never throws: the task is not cancelled.
      try? await Task.sleep(for: .seconds(1))
      if self?.state.withLock({ $0.number }) == number { _ = self?.exchange(with: ItemTable()) }
    }
  }

  /// The number of the new table.
  private func exchange(with table: ItemTable<Item>) -> Int {
    let (previous, number) = state.withLock { state in
      let previous = state.table
      state.table = table
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
  // Moved: were it captured, a task that is fast could leave the last reference to the caller.
  let moved = MutexProtected<Value?>(consume value)
  Task.detached(priority: .utility) { _ = moved.withLock { $0.take() } }
}
