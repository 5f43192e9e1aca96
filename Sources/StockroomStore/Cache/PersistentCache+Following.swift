import StockroomCore

/// Whether a cache is notified of changes by others in storage.
enum CacheFeed {
  case notWatched
  /// The last attempt to subscribe has failed.
  case failed
  case subscribing(Task<Void, Never>, isRetry: Bool)
  /// Nil if the engine has no feed, or none that distinguishes the origin of a change.
  case watched(Task<Void, Never>?)
}

extension PersistentCache.Core {
  /// Ensures that entries leave memory when others change them, from now on. Waits for the first attempt to subscribe. If
  /// it fails, the next read or write of storage retries, without waiting, since an attempt may take long to fail.
  func followIfNeeded() async {
    guard let subscription = startFollowing(), !subscription.isRetry else { return }
    await subscription.task.value
  }

  /// Whether entries in memory leave it when others change them in storage. Also true if the engine has no change feed.
  var isFollowing: Bool {
    guard let storage, storage.engine.capabilities.contains(.changeFeed) else { return true }
    return feed.withLock { if case .watched = $0 { true } else { false } }
  }

  /// Like ``followIfNeeded()``, without waiting. Subscribing may wait for writers, and reads must not.
  ///
  /// - Returns: The attempt in progress. Nil if there is nothing to wait for: entries that are read from now on may stay in memory.
  @discardableResult func startFollowing() -> (task: Task<Void, Never>, isRetry: Bool)? {
    guard let storage, storage.engine.capabilities.contains(.changeFeed) else { return nil }
    return feed.withLock { feed in
      let isRetry: Bool
      switch feed {
      case .notWatched: isRetry = false
      case .failed: isRetry = true
      case .subscribing(let subscription, let isRetry): return (subscription, isRetry)
      case .watched: return nil
      }
      let subscription = Task { await self.follow(storage.engine) }
      feed = .subscribing(subscription, isRetry: isRetry)
      return (subscription, isRetry)
    }
  }

  private func follow(_ engine: any StorageEngine) async {
    do {
      let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
      // A feed that does not leave out the changes of this cache is ignored: each write would remove its own value from memory.
      guard changes.origin === origin else { return feed.withLock { $0 = .watched(nil) } }
      // Entries that were read before may have changed in the meantime.
      withState { $0.forgetAll() }
      let task = Task { [weak self] in
        for await change in changes { self?.forget(change) }
      }
      feed.withLock { $0 = .watched(task) }
    } catch let error as StorageError where error.code == .unsupported {
      // The engine has no feed, despite its capabilities. This is final, since values that are read before a subscription
      // do not stay in memory.
      feed.withLock { $0 = .watched(nil) }
    } catch {
      feed.withLock { $0 = .failed }
    }
  }

  private func forget(_ change: StorageChange) {
    guard let storage, case .keys(let changed) = change else { return forgetEverything() }
    var (keys, storedKeys): ([EncodedKey], [CacheKey]) = ([], [])
    for key in changed {
      switch storage.namespace.keys(of: key) {
      case .none: break
      case .one(let encoded):
        keys.append(encoded)
        storedKeys.append(key)
      case .any: return forgetEverything()
      }
    }
    let (forgotten, measured) = (keys, storageLimit == .unlimited ? [] : storedKeys)
    if forgotten.isEmpty { return }
    withState { state in
      state.forget(forgotten)
      state.noteForeignChange(of: measured)
    }
  }

  /// Any key may have been changed, so loads in progress may be older than the stored values.
  private func forgetEverything() {
    withState { state in
      state.loads.invalidateAll()
      state.forgetAll()
      state.forgetSizes()
    }
  }
}
