import StockroomCore

/// Keeps the items that a store has shown, for a moment longer than the store does.
///
/// A view holds the array that it shows until it looks again. Were it the last to hold it, it would have to let go of
/// each item, on the main actor; with a million items that takes tens of milliseconds.
final class FormerItems<Item: StorableItem>: Sendable {
  private struct State {
    var number = 0
    var table = ItemTable<Item>()
  }

  private let state = MutexProtected(State())

  deinit {
    let table = state.withLock { $0.table }
    if !table.isSmall { releaseElsewhere(table) }
  }

  /// Keeps the table for a second, or until the next one comes, unless it is small. What was kept before is let go of
  /// here, so not to be called on the main actor.
  func keep(_ table: consuming ItemTable<Item>) {
    if table.isSmall { return }
    let number = exchange(with: table)
    Task.detached(priority: .utility) { [weak self] in
      // Is never cancelled.
      try? await Task.sleep(for: .seconds(1))
      if self?.state.withLock({ $0.number }) == number { _ = self?.exchange(with: ItemTable()) }
    }
  }

  /// The number of the new table.
  private func exchange(with table: ItemTable<Item>) -> Int {
    let (former, number) = state.withLock { state in
      let former = state.table
      state.table = table
      state.number += 1
      return (former, state.number)
    }
    // Outside the lock, since the end of an item may look at the store.
    withExtendedLifetime(former) {}
    return number
  }
}
