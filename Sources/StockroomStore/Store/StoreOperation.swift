extension Store {
  /// A chain of changes that happen together: one batch in the engine, one change of ``Store/items`` (rule S3).
  ///
  /// ```swift
  /// try await store.removeAll().insert(fresh).run()
  /// ```
  @MainActor
  public final class Operation {
    private enum Progress {
      case ready
      /// With those who called ``Operation/run()`` meanwhile.
      case running([CheckedContinuation<Void, any Error>])
      case done
    }

    private let store: Store
    private let steps: [StoreStep<Item>]
    private var progress = Progress.ready

    init(_ store: Store, _ steps: [StoreStep<Item>]) {
      self.store = store
      self.steps = steps
    }

    /// The chain so far, and then an insertion.
    public func insert(_ item: Item) -> Operation { insert([item]) }

    /// The chain so far, and then insertions.
    public func insert(_ items: [Item]) -> Operation { Operation(store, steps + [.insert(items)]) }

    /// The chain so far, and then a removal.
    public func remove(_ item: Item) -> Operation { remove([item]) }

    /// The chain so far, and then removals.
    public func remove(_ items: [Item]) -> Operation { Operation(store, steps + [.remove(items)]) }

    /// The chain so far, and then the removal of everything.
    public func removeAll() -> Operation { Operation(store, steps + [.removeAll]) }

    /// Does everything in the chain, in order, as one batch.
    ///
    /// Does nothing if it has been done before. One that failed may be run again. Throws as
    /// `insert(_:)`.
    public func run() async throws {
      switch progress {
      case .done:
        return
      case .running(let others):
        try await withCheckedThrowingContinuation { progress = .running(others + [$0]) }
      case .ready:
        progress = .running([])
        do {
          try await store.perform(steps)
          finish(.done, .success(()))
        } catch {
          finish(.ready, .failure(error))
          throw error
        }
      }
    }

    private func finish(_ next: Progress, _ result: Result<Void, any Error>) {
      if case .running(let others) = progress { for other in others { other.resume(with: result) } }
      progress = next
    }
  }
}
