import StockroomCore

/// Whether a cache is notified of what others change in storage.
enum CacheFeed {
  case notWatched
  case subscribing(Task<Void, Never>)
  /// Nil if the engine has no feed, or none that tells whose a change is.
  case watched(Task<Void, Never>?)
}

extension PersistentCache.Core {
  /// Sees to it that an entry which others change leaves memory, from now on. If the engine cannot be watched at the moment, the next
  /// read of storage tries again.
  func followIfNeeded() async { await startFollowing()?.value }

  /// Whether what is in memory leaves it when others change it in storage, as far as the engine reports changes at all.
  var isFollowing: Bool {
    guard let storage, storage.engine.capabilities.contains(.changeFeed) else { return true }
    return feed.withLock { if case .watched = $0 { true } else { false } }
  }

  /// As ``followIfNeeded()``, without waiting: subscribing may have to wait for writers, for which reads need not wait.
  ///
  /// - Returns: Nil if there is nothing to wait for: what is read from now on may stay in memory.
  @discardableResult func startFollowing() -> Task<Void, Never>? {
    guard let storage, storage.engine.capabilities.contains(.changeFeed) else { return nil }
    return feed.withLock { feed in
      switch feed {
      case .notWatched:
        let subscription = Task { await self.follow(storage.engine) }
        feed = .subscribing(subscription)
        return subscription
      case .subscribing(let subscription): return subscription
      case .watched: return nil
      }
    }
  }

  private func follow(_ engine: any StorageEngine) async {
    do {
      let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
      // Otherwise it would be notified of its own changes too, and keep nothing in memory.
      guard changes.origin === origin else { return feed.withLock { $0 = .watched(nil) } }
      // What has been read before may have been changed since.
      withState { $0.forgetAll() }
      let task = Task { [weak self] in
        for await change in changes { self?.forget(change) }
      }
      feed.withLock { $0 = .watched(task) }
    } catch let error as StorageError where error.code == .unsupported {
      // It never has a feed, whatever it claims. Otherwise nothing that is read would stay in memory.
      feed.withLock { $0 = .watched(nil) }
    } catch {
      feed.withLock { $0 = .notWatched }
    }
  }

  private func forget(_ change: StorageChange) {
    guard let storage, case .keys(let changed) = change else { return forgetEverything() }
    var keys: [EncodedKey] = []
    for key in changed {
      switch storage.namespace.keys(of: key) {
      case .none: break
      case .one(let key): keys.append(key)
      case .any: return forgetEverything()
      }
    }
    let forgotten = keys
    if !forgotten.isEmpty { withState { $0.forget(forgotten) } }
  }

  /// Any key may have been changed: what is being loaded may be older than what is stored.
  private func forgetEverything() {
    withState { state in
      state.loads.invalidateAll()
      state.forgetAll()
    }
  }
}
