import StockroomCore

extension Store {
  /// A chain of changes that take effect together: one batch in the engine, one change of ``Store/items``
  /// (rule S3).
  ///
  /// ```swift
  /// try await store.removeAll().insert(fresh).run()
  /// ```
  ///
  /// Without ``Operation/run()`` nothing happens. In a debug build, an assertion fails when a chain of two or more changes
  /// is released without it.
  @MainActor
  public final class Operation {
    private enum Progress {
      case ready
      /// The associated values are the other callers of ``Operation/run()``, which wait for the result.
      case running([CheckedContinuation<Void, any Error>])
      case done
    }

    /// The steps of a chain, shared with the chains that continue it, so that each step is added in O(1).
    private final class Log: Sendable {
      private let steps: MutexProtected<[StoreStep<Item>]>

      init(_ steps: [StoreStep<Item>]) { self.steps = MutexProtected(steps) }

      deinit {
        let steps = steps.withLock { exchange(&$0, with: []) }
        if steps.reduce(0, { $0 + $1.itemCount }) > 1_000 { releaseInBackground(consume steps) }
      }

      func prefix(_ count: Int) -> [StoreStep<Item>] { steps.withLock { Array($0[..<count]) } }

      /// Appends a step if the log has exactly `count` steps; otherwise returns false.
      func append(_ step: StoreStep<Item>, after count: Int) -> Bool {
        steps.withLock { steps in
          guard steps.count == count else { return false }
          steps.append(step)
          return true
        }
      }
    }

    private let store: Store
    private let log: Log
    /// The number of steps in the log that belong to this chain.
    private let count: Int
    private var progress = Progress.ready
    /// Whether it has been run or continued.
    private var isUsed = false

    convenience init(_ store: Store, _ step: StoreStep<Item>) { self.init(store, Log([step]), count: 1) }

    private init(_ store: Store, _ log: Log, count: Int) {
      (self.store, self.log, self.count) = (store, log, count)
    }

    deinit {
      // A chain of one change is not reported, since it may be released because the argument of the next change threw:
      // `store.removeAll().insert(try …)`. A cancelled task may release any chain.
      let isForgotten = !isUsed && count > 1 && !Task.isCancelled
      assert(
        !isForgotten,
        "A chain of \(count) changes to a Store of \(Item.self) has been released without run(), so nothing has changed."
      )
    }

    private func continued(with step: StoreStep<Item>) -> Operation {
      isUsed = true
      // If this chain has been continued before, the second branch gets its own log.
      let log = log.append(step, after: count) ? log : Log(log.prefix(count) + [step])
      return Operation(store, log, count: count + 1)
    }

    /// The chain followed by an insertion.
    public func insert(_ item: Item) -> Operation { insert([item]) }

    /// The chain followed by insertions.
    public func insert(_ items: [Item]) -> Operation { continued(with: .insert(items)) }

    /// The chain followed by a removal.
    public func remove(_ item: Item) -> Operation { remove([item]) }

    /// The chain followed by removals.
    public func remove(_ items: [Item]) -> Operation { continued(with: .remove(items)) }

    /// The chain followed by the removal of all entries.
    public func removeAll() -> Operation { continued(with: .removeAll) }

    /// Applies the changes of the chain, in order, as one batch.
    ///
    /// Does nothing if the chain has been run before. A chain that failed may be run again. Throws as
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
          try await store.perform(log.prefix(count))
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
