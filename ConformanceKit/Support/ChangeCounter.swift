import Observation

/// A number that tasks on the main actor share.
@MainActor final class Counter { var count = 0 }

/// Counts how often observers of a store's items are notified that they change.
@MainActor
final class ChangeCounter {
  private(set) var count = 0
  private let store: any CheckedStore

  init(_ store: any CheckedStore) {
    self.store = store
    watch()
  }

  private func watch() {
    withObservationTracking {
      _ = store.items
    } onChange: { [weak self] in
      // The items are only changed on the main actor.
      MainActor.assumeIsolated {
        self?.count += 1
        self?.watch()
      }
    }
  }
}
