import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// The value of a key; if there is none or it has expired, what `fallback` loads, which the cache then keeps.
  ///
  /// ```swift
  /// let user = try await cache.fetch(id, expiresIn: 60 * 60) { try await api.user(id) }
  /// ```
  ///
  /// However many ask for a key at the same time, one of the loaders runs, once, and all get what it yields or throws.
  /// An error is not kept: who asks next starts a loader anew. So does who asks after the key was assigned, stored or
  /// removed while the loader was running; those who already wait still get what it yields, but it is not kept.
  ///
  /// Who is cancelled while waiting gets a `CancellationError` at once, and the loader goes on for the others. If
  /// nobody waits any more the loader is cancelled.
  ///
  /// What was loaded is kept as by `cache[key] = value`: the call does not wait for it to be written. It also replaces
  /// what is stored and cannot be decoded, such as values of a type that has changed since.
  ///
  /// The loader has the priority of the first who asks, and is raised to that of everybody more urgent who joins. Its
  /// task-local values are those of the first.
  ///
  /// - Parameters:
  ///   - key: what the value is found by.
  ///   - lifetime: seconds from the end of the loading until the value expires. Nil means never.
  ///   - fallback: loads the value. It runs in a task of its own and may fetch other keys, of this cache and of others.
  ///     Where it asks for a key whose loader waits for this one, so that both would wait for ever, the loader of that
  ///     call runs once more instead, for this call alone.
  /// - Throws: what `fallback` throws; what the engine throws when it reads the key, and then `fallback` is not called;
  ///   `StorageError` with code `unsupported` if to load the key is to load the key, without end.
  public func fetch(
    _ key: Key, expiresIn lifetime: TimeInterval? = nil,
    fallback: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let text = try KeyText(key)
    try Task.checkCancellation()
    if let value = valueInMemory(text) { return value }
    let id = LoadContext.nextID()
    do {
      return try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
          join(text, as: id, continuation, expiresIn: lifetime, fallback)
          // The handler may have run before there was a waiter to be found.
          if Task.isCancelled { leave(id) }
        }
      } onCancel: {
        leave(id)
      }
    } catch is WouldWaitForItself {
      let context = try LoadContext.current.loadingAlone(text, of: ObjectIdentifier(core))
      return try await LoadContext.$current.withValue(context) { try await fallback() }
    }
  }

  private func join(
    _ key: KeyText, as id: Int, _ waiter: LoadTable<Value>.Waiter, expiresIn lifetime: TimeInterval?,
    _ fallback: @escaping @Sendable () async throws -> Value
  ) {
    let now = now()
    let result: Result<Value, any Error>? = withState { state in
      // It may have been loaded since.
      if let item = state.lookUp(key) ?? nil, !item.isExpired(at: now) { return .success(item.value) }
      let hasJoined = state.loads.join(key, as: id, waiter, in: LoadContext.current) { load in
        Task { await run(load, of: key, expiresIn: lifetime, fallback) }
      }
      return hasJoined ? nil : .failure(WouldWaitForItself())
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
    _ load: Int, of key: KeyText, expiresIn lifetime: TimeInterval?,
    _ fallback: @Sendable () async throws -> Value
  ) async {
    do {
      if let item = try await find(key, .none), !item.isExpired(at: now()) {
        return end(load, .success(item.value)) { _ in }
      }
      let context = LoadContext.current.loading(load)
      let value = try await LoadContext.$current.withValue(context) { try await fallback() }
      let item = newItem(value, expiresIn: lifetime)
      end(load, .success(value)) { assign(item, to: key, in: &$0) }
    } catch {
      end(load, .failure(error)) { _ in }
    }
  }

  /// Gives the result to all who wait, and keeps it, in one step, if the key has not changed meanwhile.
  private func end(_ load: Int, _ result: Result<Value, any Error>, keep: (inout State) -> Void) {
    var waiters: [LoadTable<Value>.Waiter] = []
    schedule { state in
      let ended = state.loads.end(load)
      waiters = ended.waiters
      if ended.isCurrent { keep(&state) }
    }
    for waiter in waiters { waiter.resume(with: result) }
  }
}
