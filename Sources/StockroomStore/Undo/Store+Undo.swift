import StockroomCore

extension Store {
  /// How much can be undone. ``StoreUndoLimit/none``, unless it is set: then nothing is recorded, and nothing is paid for it.
  ///
  /// ```swift
  /// tasks.undoLimit = StoreUndoLimit(calls: 50)
  /// ```
  ///
  /// While it is set, each call reads the entries that it changes before it changes them, in one transaction, so that it is
  /// known what the call has replaced, and is a batch of its own, even if others wait. ``removeAll()`` reads all entries, up to the
  /// limit of bytes. Setting a lower limit forgets what is over it. A preview records nothing.
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

  /// Whether there is something for ``undo()`` to do. O(1).
  public var canUndo: Bool {
    access(keyPath: \.canUndo)
    return !history.undo.isEmpty
  }

  /// Whether there is something for ``redo()`` to do. O(1).
  public var canRedo: Bool {
    access(keyPath: \.canRedo)
    return !history.redo.isEmpty
  }

  /// Makes the last call or chain of this store undone, as one batch.
  ///
  /// ```swift
  /// try await tasks.remove(task)
  /// try await tasks.undo()
  /// ```
  ///
  /// It takes effect after all calls that were made before, and is a change as any other, with events. Of the entries that the
  /// call has changed,
  ///
  /// - those that it has replaced are replaced by what they were, in their places;
  /// - those that it has inserted are removed;
  /// - those that it has removed, unreadable ones included, are inserted again. An engine puts what is inserted behind all
  ///   others, so they are at the end of ``items``, in the order in which they were: in their former places if those were at the
  ///   end, or if all had been removed. A restart shows the same order (rule S4). Their time of creation is that of this call.
  ///
  /// The bytes are those that the engine held before the call. O(n) for a call that changed n entries, and what removing and
  /// inserting them costs.
  ///
  /// Another `undo()` is for the call before. ``redo()`` makes it done again, until another call is made.
  ///
  /// - Returns: Whether there was something to undo.
  /// - Throws: `StorageError` with code `conflict` if an entry that the call has changed is not as the call has left it, since others
  ///   have changed it: then this call can no longer be undone, and the next `undo()` is for the one before. Otherwise as
  ///   `insert(_:)`, and it can be tried again. Nothing has changed then.
  @discardableResult
  public func undo() async throws -> Bool { try await revert(.undo) }

  /// Makes the last ``undo()`` undone, as one batch. Does and throws the same: what it inserts is at the end of ``items``.
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
  /// Removes the changes that are committed together from those that wait: one alone if it is recorded.
  func takeNext() -> [Change] {
    guard let first = waiting.popFirst() else { return [] }
    var taken = [first]
    if first.reversal != nil || history.isRecording { return taken }
    while waiting.first?.reversal == nil, let next = waiting.popFirst() { taken.append(next) }
    return taken
  }

  /// How to commit these changes. Nil if there is nothing to undo or redo.
  func undoPlan(for changes: [Change]) -> UndoPlan? {
    if let reversal = changes.first?.reversal {
      return history.next(reversal.direction).map { .revert($0, limit: history.limit.bytes) }
    }
    // Rewriting an older version changes no item.
    if case .rewrite? = changes.first?.steps.first { return UndoPlan.none }
    return history.isRecording && backend.engine != nil ? .record(limit: history.limit.bytes) : UndoPlan.none
  }

  /// Notes what a change has changed, before its caller resumes.
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

  /// Notes what a change has rewritten in the newest version, if it does that, so that it is not rewritten again, and is
  /// no conflict for undo and redo.
  func noteRewriting(by change: Change) {
    guard case .rewrite(let rewriting)? = change.steps.first,
      let replaced = rewriting.result.withLock({ $0?.replaced }), !replaced.isEmpty
    else { return }
    // They have been noted again if they have been read while the change waited.
    backend.versions.forgetOld(replaced.keys)
    if history.isRecording { changeHistory { $0.note(replaced) } }
  }

  /// Notes what a call has changed; nil if that is too much to be held.
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
  /// What it makes undone or done again, if it does that.
  var reversal: StoreReversal? {
    if case .revert(let reversal)? = steps.first { reversal } else { nil }
  }
}
