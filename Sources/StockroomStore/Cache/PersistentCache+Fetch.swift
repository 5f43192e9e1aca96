import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// The value of a key. If there is none or it has expired, loads it with `fallback` and keeps it.
  ///
  /// ```swift
  /// let user = try await cache.fetch(id, expiresIn: 60 * 60) { try await api.user(id) }
  /// ```
  ///
  /// Concurrent calls for one key share one load: one of their loaders runs, once, and all of them return its value or
  /// throw its error. An error is not kept: the next call starts a new load. If the key is assigned, stored or removed
  /// during a load, the calls that are already waiting still return the loaded value, but it is not kept, and the next call
  /// starts a new load.
  ///
  /// A cancelled call throws `CancellationError` immediately, and the load continues for the other callers.
  /// If there are none left, the load is cancelled.
  ///
  /// The loaded value is kept as by `cache[key] = value`: the call does not wait until it is written. It replaces a stored
  /// value that cannot be decoded, such as one whose type has changed. If the stored value is of a newer version, it stays,
  /// and the loaded value is returned but not kept. A load that begins before the cache has subscribed to the changes of
  /// others reads the key again at its end; if there is a value by then, the loaded one is not kept.
  ///
  /// The loader has the priority of the first caller, raised to that of every later one. Its task-local values are those
  /// of the first caller.
  ///
  /// - Parameters:
  ///   - key: The key of the value.
  ///   - lifetime: The seconds until the value expires, from the end of loading. Nil means never.
  ///   - fallback: Loads the value. It runs in its own task and may fetch other keys, of this cache and of
  ///     others. If it fetches a key whose load waits for this load, sharing that load would be a deadlock; instead, the loader of
  ///     the inner call runs for that call only.
  /// - Throws: what `fallback` throws; what the engine throws when it reads the key, and then `fallback` is not called;
  ///   `StorageError` with code `unsupported` if loaders fetch each other's keys without end.
  public func fetch(
    _ key: Key, expiresIn lifetime: TimeInterval? = nil,
    fallback: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let encodedKey = try EncodedKey(key)
    try Task.checkCancellation()
    if let value = valueInMemory(encodedKey) { return value }
    let id = LoadContext.nextID()
    do {
      return try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
          join(encodedKey, as: id, continuation, expiresIn: lifetime, fallback)
          // The handler may have run before the waiter was added.
          if Task.isCancelled { leave(id) }
        }
      } onCancel: {
        leave(id)
      }
    } catch is LoadCycle {
      let context = try LoadContext.current.unsharedLoad(encodedKey, of: ObjectIdentifier(core))
      return try await LoadContext.$current.withValue(context) { try await fallback() }
    }
  }

  private func join(
    _ key: EncodedKey, as id: Int, _ waiter: SingleFlightLoads<Value>.Waiter,
    expiresIn lifetime: TimeInterval?,
    _ fallback: @escaping @Sendable () async throws -> Value
  ) {
    let now = now()
    let result: Result<Value, any Error>? = withState { state in
      // The value may have been loaded since the first look-up.
      if let item = state.lookUp(key) ?? nil, !item.isExpired(at: now) { return .success(item.value) }
      let hasJoined = state.loads.join(key, as: id, waiter, in: LoadContext.current) { load in
        Task { await run(load, of: key, expiresIn: lifetime, fallback) }
      }
      return hasJoined ? nil : .failure(LoadCycle())
    }
    if let result { waiter.resume(with: result) }
  }

  private func leave(_ id: Int) {
    let (waiter, abandoned) = withState { $0.loads.leave(id) }
    abandoned?.cancel()
    waiter?.resume(throwing: CancellationError())
  }

  @concurrent
  private func run(
    _ load: Int, of key: EncodedKey, expiresIn lifetime: TimeInterval?,
    _ fallback: @Sendable () async throws -> Value
  ) async {
    do {
      var isKept = true
      // Determined before the read, since a change between the read and the subscription would not be reported.
      let isFollowing = core.isFollowing
      do {
        let now = now()
        if let item = try await find(key, .none), !item.isExpired(at: now) {
          return end(load, .success(item.value)) { _ in }
        }
      } catch let error as StorageError where error.isOfNewerVersion {
        isKept = false
      }
      let context = LoadContext.current.nested(load)
      let value = try await LoadContext.$current.withValue(context) { try await fallback() }
      // Values that others stored before the subscription have not been reported.
      if isKept, !isFollowing { isKept = await isMissing(key) }
      let item = newItem(value, expiresIn: lifetime)
      end(load, .success(value)) { state in
        // A store or removal in progress is newer than the loaded value.
        if isKept, state.changesUnderWay[key] == nil { assign(item, to: key, in: &state) }
      }
    } catch {
      end(load, .failure(error)) { _ in }
    }
  }

  /// Whether the key has no value, or an expired one. False if that cannot be read.
  private func isMissing(_ key: EncodedKey) async -> Bool {
    do {
      let now = now()
      return try await find(key, .none)?.isExpired(at: now) ?? true
    } catch {
      // The loaded value is returned anyway, and the next call reads again.
      return false
    }
  }

  /// Returns the result to all waiters and, in the same step, keeps it if the key has not changed.
  private func end(_ load: Int, _ result: Result<Value, any Error>, keep: (inout State) -> Void) {
    var waiters: [SingleFlightLoads<Value>.Waiter] = []
    schedule { state in
      let ended = state.loads.end(load)
      waiters = ended.waiters
      if ended.isCurrent { keep(&state) }
    }
    for waiter in waiters { waiter.resume(with: result) }
  }
}
