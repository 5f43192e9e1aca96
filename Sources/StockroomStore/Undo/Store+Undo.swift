import StockroomCore

extension Store {
  /// How much can be undone. The default is ``StoreUndoLimit/none``: nothing is recorded, at no cost.
  ///
  /// ```swift
  /// tasks.undoLimit = StoreUndoLimit(calls: 50)
  /// ```
  ///
  /// While a limit is set, each call first reads the entries that it changes, in the same transaction, to record their
  /// previous values. Each call is then a batch of its own, even if other calls wait. ``removeAll()`` reads all entries, up
  /// to the limit of bytes. Setting a lower limit drops the records that exceed it. A preview records nothing.
  public var undoLimit: StoreUndoLimit {
    get {
      access(keyPath: \.undoLimit)
      return history.limit
    }
    set {
      withMutation(keyPath: \.undoLimit) {
        changeHistory { history in
          history.limit = newValue
          history.trim()
        }
      }
    }
  }

  /// Whether ``undo()`` has something to undo. O(1).
  public var canUndo: Bool {
    access(keyPath: \.canUndo)
    return !history.undo.isEmpty
  }

  /// Whether ``redo()`` has something to redo. O(1).
  public var canRedo: Bool {
    access(keyPath: \.canRedo)
    return !history.redo.isEmpty
  }

  /// Undoes the last call or chain of this store, as one batch.
  ///
  /// ```swift
  /// try await tasks.remove(task)
  /// try await tasks.undo()
  /// ```
  ///
  /// The undo takes effect after all earlier calls, and is a change like any other, with events:
  ///
  /// - Entries that the call has replaced get their previous contents, in their positions.
  /// - Entries that the call has inserted are removed.
  /// - Entries that the call has removed, including unreadable ones, are inserted again. An engine appends inserted
  ///   entries, so they are at the end of ``items``, in their previous order. These are their previous positions if they
  ///   were at the end before, or if all entries had been removed. A restart shows the same order (rule S4). Their
  ///   `createdAt` is the time of this call.
  ///
  /// The bytes are those that the engine held before the call. O(n) for a call that changed n entries, plus
  /// the cost of removing and inserting them.
  ///
  /// Another `undo()` undoes the call before that. ``redo()`` restores the effect, unless another call has changed the
  /// store since then.
  ///
  /// - Returns: Whether there was something to undo.
  /// - Throws: `StorageError` with code `conflict`, with nothing changed, if others have changed an entry since the call
  ///   changed it. That call can then no longer be undone, and the next `undo()` undoes the one before. Otherwise as
  ///   `insert(_:)`; after such an error, the undo can be retried.
  @discardableResult
  public func undo() async throws -> Bool { try await revert(.undo) }

  /// Reverses the last ``undo()``, as one batch. Behaves and throws the same: inserted entries are at the end
  /// of ``items``.
  ///
  /// - Returns: Whether there was something to redo.
  @discardableResult
  public func redo() async throws -> Bool { try await revert(.redo) }

  private func revert(_ direction: UndoHistory.Direction) async throws -> Bool {
    let reversal = StoreReversal(direction)
    try await perform([.revert(reversal)])
    return reversal.isDone.withLock { $0 }
  }
}

// MARK: - Recording

extension Store {
  /// Removes the next changes to be committed together from the queue: a single one if it is recorded, or is an undo or redo.
  func takeNext() -> [Change] {
    guard let first = waiting.popFirst() else { return [] }
    var taken = [first]
    if first.reversal != nil || history.isRecording { return taken }
    while waiting.first?.reversal == nil, let next = waiting.popFirst() { taken.append(next) }
    return taken
  }

  /// The plan for committing these changes. Nil if they are an undo or redo, and there is nothing to undo or redo.
  func undoPlan(for changes: [Change]) -> UndoPlan? {
    if let reversal = changes.first?.reversal {
      return history.next(reversal.direction).map { .revert($0, limit: history.limit.bytes) }
    }
    // Rewriting an older version changes no item.
    if case .rewrite? = changes.first?.steps.first { return UndoPlan.none }
    return history.isRecording && backend.engine != nil ? .record(limit: history.limit.bytes) : UndoPlan.none
  }

  /// Records the effect of a change, before its caller resumes.
  func record(_ outcome: UndoOutcome, of changes: [Change]) {
    let reversal = changes.first?.reversal
    switch outcome {
    case .notRecorded: break
    case .outdated: if let reversal { changeHistory { $0.drop(reversal.direction) } }
    case .recorded(let record):
      guard let reversal else { return add(record) }
      changeHistory { $0.revert(reversal.direction, record) }
      reversal.isDone.withLock { $0 = true }
    }
  }

  /// Records the entries that a change has rewritten in the newest version, if any, so that they are not rewritten again
  /// and do not cause a conflict in an undo or redo.
  func noteRewriting(by change: Change) {
    guard case .rewrite(let rewriting)? = change.steps.first,
      let replaced = rewriting.result.withLock({ $0?.replaced }), !replaced.isEmpty
    else { return }
    // If they were read while the change waited, they have been recorded as old again.
    backend.versions.forgetOld(replaced.keys)
    if history.isRecording { changeHistory { $0.note(replaced) } }
  }

  /// Records the effect of a call; nil if it is too large to be held.
  private func add(_ record: UndoRecord?) {
    changeHistory { $0.add(record) }
    #if canImport(Darwin)
      if record?.entries.isEmpty == false { undoRegistration?.register(.undo, of: self) }
    #endif
  }

  func changeHistory(_ change: (inout UndoHistory) -> Void) {
    let before = (hasUndo: !history.undo.isEmpty, hasRedo: !history.redo.isEmpty)
    change(&history)
    var dropped = history.takeDropped()
    if before.hasUndo == history.undo.isEmpty { withMutation(keyPath: \.canUndo) {} }
    if before.hasRedo == history.redo.isEmpty { withMutation(keyPath: \.canRedo) {} }
    // Releasing many values takes long.
    if dropped.reduce(0, { $0 + $1.entries.count }) > 1_000 {
      releaseInBackground(exchange(&dropped, with: []))
    }
  }
}

extension Store.Change {
  /// The undo or redo that the change makes, if any.
  var reversal: StoreReversal? {
    if case .revert(let reversal)? = steps.first { reversal } else { nil }
  }
}
