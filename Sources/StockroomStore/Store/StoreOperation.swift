extension Store {
  /// A chain of changes that happen together: one batch in the engine, one change of ``Store/items`` (rule S3).
  ///
  /// ```swift
  /// try await store.removeAll().insert(fresh).run()
  /// ```
  ///
  /// Without ``Operation/run()`` nothing happens; a chain of two changes or more that is dropped without it stops a debug
  /// build with an assertion.
  @MainActor
  public final class Operation {
    private enum Progress {
      case ready
      /// With those who called ``Operation/run()`` meanwhile.
      case running([CheckedContinuation<Void, any Error>])
      case done
    }

    /// The steps of a chain and of those that continue it, so that a chain of many is built in O(1) for each.
    private final class Log {
      var steps: [StoreStep<Item>]
      init(_ steps: [StoreStep<Item>]) { self.steps = steps }
    }

    private let store: Store
    private let log: Log
    /// The chain is so much of the log.
    private let count: Int
    private var progress = Progress.ready
    /// Whether it has been run or continued: whether anybody cares about it.
    private var isUsed = false

    convenience init(_ store: Store, _ step: StoreStep<Item>) { self.init(store, Log([step]), count: 1) }

    private init(_ store: Store, _ log: Log, count: Int) {
      (self.store, self.log, self.count) = (store, log, count)
    }

    deinit {
      // The first change of a chain may be dropped because the next could not be made: `store.removeAll().insert(try …)`.
      // Nor is it a mistake not to run what somebody has cancelled.
      let isForgotten = !isUsed && count > 1 && !Task.isCancelled
      assert(
        !isForgotten,
        "A chain of \(count) changes to a Store of \(Item.self) has been dropped without run(), so nothing was changed."
      )
    }

    private func continued(with step: StoreStep<Item>) -> Operation {
      isUsed = true
      // Continued for the second time: a log of its own for the second branch.
      let log = log.steps.count == count ? log : Log(Array(log.steps[..<count]))
      log.steps.append(step)
      return Operation(store, log, count: count + 1)
    }

    /// The chain so far, and then an insertion.
    public func insert(_ item: Item) -> Operation { insert([item]) }

    /// The chain so far, and then insertions.
    public func insert(_ items: [Item]) -> Operation { continued(with: .insert(items)) }

    /// The chain so far, and then a removal.
    public func remove(_ item: Item) -> Operation { remove([item]) }

    /// The chain so far, and then removals.
    public func remove(_ items: [Item]) -> Operation { continued(with: .remove(items)) }

    /// The chain so far, and then the removal of everything.
    public func removeAll() -> Operation { continued(with: .removeAll) }

    /// Does everything in the chain, in order, as one batch.
    ///
    /// Does nothing if it has been done before. One that failed may be run again. Throws as
    /// `insert(_:)`.
    public func run() async throws {
      isUsed = true
      switch progress {
      case .done:
        return
      case .running(let others):
        try await withCheckedThrowingContinuation { progress = .running(others + [$0]) }
      case .ready:
        progress = .running([])
        do {
          try await store.perform(Array(log.steps[..<count]))
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
