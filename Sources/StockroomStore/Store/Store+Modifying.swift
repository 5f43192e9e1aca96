import StockroomCore

extension Store {
  /// Reads the item with this identifier from the engine, and inserts, changes or removes it, as one step. Like
  /// `update(_:_:)`, for an item that may be absent before or afterwards (rule S10).
  ///
  /// ```swift
  /// // Removes a note, and returns it as it was at that moment.
  /// let removed = try await notes.modify(id) { note in note.take() }
  ///
  /// // Inserts a note, unless there is one.
  /// let note = try await notes.modify(new.id) { note in
  ///   if note == nil { note = new }
  ///   return note
  /// }
  /// ```
  ///
  /// The closure receives the stored item, or nil if there is none, and changes it in place. The result is stored; nil
  /// removes the item. If the closure does not change the item, nothing is written and no event is sent, except with a
  /// codec of your own that may encode equal items differently.
  ///
  /// The closure may run more than once, in which case the last run counts. It runs on a thread of the engine, or, without
  /// `EngineCapabilities.transactions`, on the pool of Swift's tasks, where it must not block. O(log N); a removal is O(N) in the
  /// number of items after the removed one, which move up.
  ///
  /// - Returns: What the closure returned.
  /// - Throws: what the closure threw, with nothing changed; `StorageError` with code `unsupported` if the closure changes the
  ///   identifier or a newer program has stored the item, or with code `decodingFailed`; otherwise as `insert(_:)`.
  @discardableResult
  public func modify<Result: Sendable>(
    _ identifier: String, _ body: @escaping @Sendable (inout Item?) throws -> Result
  ) async throws -> Result {
    if backend.engine == nil { return try await modifyPreview(identifier, body) }
    let returned = MutexProtected<Result?>(nil)
    let modification = StoreUpdate<Item>(modifying: CacheKey(identifier: identifier)) { item in
      let result = try body(&item)
      returned.withLock { $0 = result }
    }
    try await perform([.update(modification)])
    guard let result = returned.withLock({ $0 }) else {
      throw StorageError(.io, "The engine has acknowledged a transaction without running it.")
    }
    return result
  }

  private func modifyPreview<Result: Sendable>(
    _ identifier: String, _ body: @Sendable (inout Item?) throws -> Result
  ) async throws -> Result {
    // No change may take place between looking up the item and queueing its change.
    while isCommitting { await waitForNextBatch() }
    let (present, key) = (self.item(identifier: identifier), CacheKey(identifier: identifier))
    let before = try present.map { try backend.codec.encode($0, for: key) }
    var item = present
    let result = try body(&item)
    if let item {
      try backend.checkIdentifier(of: item, is: key)
      let after = try backend.codec.encode(item, for: key)
      if let before, try backend.isUnchanged(item, after, from: before, of: key) { return result }
      try await insert(item)
    } else if let present {
      try await remove(present)
    }
    return result
  }
}
