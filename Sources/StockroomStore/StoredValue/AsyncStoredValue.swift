import Observation
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A single value that is stored in any storage engine.
///
/// ```swift
/// @AsyncStoredValue(storage: engine, key: "draft") var draft = Draft()
///
/// try await $draft.valueHasLoaded()
/// draft.title                                      // the stored title, or that of the default
/// try await $draft.set(\.title, to: "Untitled")
/// ```
///
/// The value is read through the property and changed through its projection, the `$` form, which is this
/// class. The codec's bytes, JSON by default, are stored under the key; a key that is empty or too long for an
/// engine is hashed (rule S8).
///
/// ## Loading
///
/// Loading begins in the background when the object is created. Until it is complete, the value is the default. If loading
/// fails, because the engine fails or because the bytes cannot be decoded, the value stays the default and ``failure`` is
/// the error; the next operation that depends on the stored value throws it, and the one after that loads again. A stored
/// value that cannot be read is not overwritten, except by ``set(_:)`` and ``reset()``, which do not depend on it. A value
/// of a newer version is not replaced by ``set(_:)``; only ``reset()`` removes it. A value for which the engine throws
/// `.corrupted` or `.permissionDenied` does not count as one of a newer version.
///
/// ## Operations
///
/// Any number of tasks may call any method. Operations on one object are executed one after another, in the
/// order of the calls, each atomically (rule S1). The value changes once the engine has acknowledged it; a
/// call that throws leaves the value and the engine unchanged (rule S2). After an error with an unknown
/// outcome, such as `io`, the stored value is read again. An operation whose task is cancelled before its
/// turn throws `CancellationError` and does nothing. Values are encoded and decoded off the caller's actor.
///
/// If the engine has `EngineCapabilities.changeFeed`, this object follows changes that others make under the key, in this
/// process or in another one. If the engine cannot read a changed value, the value of this object does not change,
/// ``failure`` is the error, and the next operation throws it, as after loading. If the bytes are not a value of this type,
/// the value is the default, as after loading. An ``update(_:)`` is atomic only with regard to this object: if several
/// processes change the same value, use a `Store` and its `update`.
///
/// In an engine whose entries expire, ``get()`` and the operations that depend on the stored value read it each time, and
/// use the default if it has expired. ``wrappedValue`` reads nothing: after an expiry it is the old value until the next
/// such read.
///
/// ## Observation
///
/// The value and ``failure`` are observable and change once per operation, after it took effect. In a class
/// that is itself `@Observable`, mark the property with `@ObservationIgnored`; the value stays observable.
/// Storing the same bytes again is not a change, and neither is reading them again after an error.
/// Observation can miss a change that another thread makes while the value is read; ``values`` cannot.
@propertyWrapper
public final class AsyncStoredValue<Item: StorableItem>: Sendable {
  private enum Loading: Sendable {
    case pending
    /// The associated value is an error that has not been thrown yet.
    case failed(any Error)
    case done
  }

  private let engine: any StorageEngine
  /// Whether the stored value may expire, which the engine's feed does not report.
  private let mayExpire: Bool
  private let observed: ObservedValue<Item>
  private let loading = MutexProtected(Loading.pending)
  /// Locked initially, by the load in the background.
  private let mutex = AsyncMutex(isLocked: true)
  /// Distinguishes the changes of this object from those of others in the engine's feed.
  private let origin = ChangeOrigin()
  /// Receives the changes of others.
  private let feed = MutexProtected<Task<Void, Never>?>(nil)
  /// The time before which no attempt to subscribe is made. Nil, to make none, if the engine's feed cannot leave out the
  /// changes of an origin.
  private let nextSubscription = MutexProtected<ContinuousClock.Instant?>(ContinuousClock.now)

  /// Creates a value with a default that applies as long as nothing is stored.
  ///
  /// - Parameters:
  ///   - wrappedValue: The default, which is not stored.
  ///   - storage: The engine that stores the value.
  ///   - key: The key, of any length and content.
  ///   - codec: Converts the value to bytes.
  public init(
    wrappedValue: Item, storage: some StorageEngine, key: String, codec: some Codec = JSONCodec()
  ) {
    engine = storage
    mayExpire = ExpiringEntries.areExpected(in: storage)
    observed = ObservedValue(
      defaultValue: wrappedValue, key: CacheKey(identifier: key), codec: codec, assuming: .absent)
    Task { [weak self] in await self?.loadInBackground() }
  }

  deinit { feed.withLock { $0?.cancel() } }

  /// Creates an optional value, which is nil as long as nothing is stored.
  public convenience init(
    storage: some StorageEngine, key: String, codec: some Codec = JSONCodec()
  ) where Item: ExpressibleByNilLiteral {
    self.init(wrappedValue: nil, storage: storage, key: key, codec: codec)
  }

  /// The default until the value has loaded, then the last value that was read or that the engine has acknowledged. O(1).
  public var wrappedValue: Item { observed.value }

  /// This object, with the operations on the value.
  public var projectedValue: AsyncStoredValue<Item> { self }

  /// The error of loading the value: with code `decodingFailed`, or what the engine threw. Nil if there was none.
  public var failure: StorageError? { observed.failure }

  /// Waits until the value has been loaded, and for all earlier operations.
  ///
  /// - Throws: what the engine throws; `StorageError` with code `decodingFailed`; `CancellationError`. The
  ///   next call retries.
  public func valueHasLoaded() async throws {
    try await serialized { try await self.load() }
  }

  /// The value, once it has been loaded. Waits and throws as ``valueHasLoaded()``.
  public func get() async throws -> Item {
    try await valueHasLoaded()
    return try observed.get()
  }

  /// A stream of the current value, then of the value after each change, in order. Each call returns a new
  /// stream.
  ///
  /// No change is skipped. Values that have not been read are buffered without limit. The stream ends when this object is
  /// released.
  public var values: AsyncStream<Item> { values(bufferingPolicy: .unbounded) }

  /// Like ``values``, with a limit on the buffer of a slow subscriber, such as `.bufferingNewest(1)` for the
  /// current value only. A value that is skipped may be released during a change: if it is a class, its
  /// `deinit` must not use this object.
  public func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    observed.values(bufferingPolicy: bufferingPolicy)
  }

  /// Stores a value. It replaces even a value that cannot be read, unless that is of a newer version.
  ///
  /// Costs one read and one write, in one transaction if the engine has `EngineCapabilities.transactions`. Without
  /// transactions, the read is omitted if the type is not a ``VersionedItem``, the engine has
  /// `EngineCapabilities.changeFeed`, and the value has been loaded.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or with code `unsupported` if the stored value is
  ///   of a newer version; what the engine throws; `CancellationError`.
  public func set(_ value: Item) async throws {
    try await serialized { try await self.write(value) }
  }

  /// Removes the stored value, even one that cannot be read. The value is the default again.
  ///
  /// - Throws: what the engine throws; `CancellationError`.
  public func reset() async throws {
    try await serialized { try await self.remove() }
  }

  /// Reads, changes and stores the value atomically with regard to other operations on this object. Stores nothing if the
  /// closure throws. Costs the same as ``set(_:)``, plus a read if the value has not been loaded yet.
  ///
  /// - Throws: what the closure throws; `StorageError` with code `encodingFailed`; as ``valueHasLoaded()`` if
  ///   the current value could not be read; what the engine throws.
  public func update(_ change: @Sendable (inout Item) throws -> Void) async throws {
    try await updateIfNeeded { item in
      try change(&item)
      return true
    }
  }

  /// Like ``update(_:)``, for a closure that returns false if it has changed nothing.
  func updateIfNeeded(_ change: @Sendable (inout Item) throws -> Bool) async throws {
    try await serialized {
      try await self.load()
      var item = try self.observed.unobserved()
      if try change(&item) { try await self.write(item) }
    }
  }

  /// Like ``update(_:)``, and removes the stored value if `isNone` returns true for the new one.
  package func update(
    _ change: @Sendable (inout Item) throws -> Void, removingIf isNone: @Sendable (Item) -> Bool
  ) async throws {
    try await serialized {
      try await self.load()
      var item = try self.observed.unobserved()
      try change(&item)
      if isNone(item) { try await self.remove() } else { try await self.write(item) }
    }
  }
}

extension AsyncStoredValue: Observable {}

extension AsyncStoredValue {
  private func serialized(_ operation: @concurrent @Sendable () async throws -> Void) async throws {
    await mutex.lock()
    defer { mutex.unlock() }
    try Task.checkCancellation()
    try await operation()
  }

  /// Subscribes to the changes of others, unless that has been done. If that fails, a later operation retries, once ten
  /// times the duration of the failed attempt has passed.
  ///
  /// - Returns: Whether the subscription has just begun, so that others may have changed a value that was read before.
  private func followIfNeeded() async -> Bool {
    let start = ContinuousClock.now
    guard engine.capabilities.contains(.changeFeed), feed.withLock({ $0 == nil }),
      let earliest = nextSubscription.withLock({ $0 }), start >= earliest
    else { return false }
    do {
      let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
      guard changes.origin === origin else {
        nextSubscription.withLock { $0 = nil }
        return false
      }
      let task = Task { [weak self, key = observed.key] in
        for await change in changes {
          if case .keys(let keys) = change, !keys.contains(key) { continue }
          await self?.loadAgain()
        }
      }
      feed.withLock { $0 = task }
      return true
    } catch {
      // An attempt that takes long to fail must not delay every operation.
      let now = ContinuousClock.now
      nextSubscription.withLock { $0 = now + start.duration(to: now) * 10 }
      return false
    }
  }

  private func loadAgain() async {
    await mutex.lock()
    loading.withLock { $0 = .pending }
    await loadInBackground()
  }

  private func loadInBackground() async {
    defer { mutex.unlock() }
    do {
      try await load()
    } catch {
      loading.withLock { $0 = .failed(error) }
    }
  }

  /// Whether the stored value must be checked for a newer version before a write. With transactions always: only in a
  /// transaction does the check include changes that the feed has not reported yet.
  private var mayHoldNewer: Bool {
    if engine.capabilities.contains(.transactions) { return true }
    if observed.codec.isVersioned || feed.withLock({ $0 == nil }) { return true }
    if case .done = loading.withLock({ $0 }) { return false }
    return true
  }

  /// Applies one operation to the engine, then the new content to the value.
  ///
  /// If the engine throws and the outcome is unknown, or others may have changed the value before the subscription, the
  /// stored value is read again, so that no operation depends on an outdated value. If that fails too, the next operation
  /// reads it.
  private func perform(_ operation: StorageOperation, _ content: StoredContent) async throws {
    let followsNow = await followIfNeeded()
    if followsNow {
      // Others may have changed the value that was read before.
      loading.withLock { if case .done = $0 { $0 = .pending } }
    }
    do {
      try await ChangeOrigin.$current.withValue(origin) {
        if mayHoldNewer {
          try await engine.apply(
            operation, to: observed.key, keepingReadableNewerThan: observed.codec.version)
        } else {
          try await engine.apply([operation])
        }
      }
      take(content)
    } catch {
      let isOutcomeKnown = engine.wasDefinitelyNotApplied([operation], after: error)
      if isOutcomeKnown, !followsNow { throw error }
      if !isOutcomeKnown { loading.withLock { $0 = .pending } }
      // In a separate task, which is not cancelled with this one.
      let read = await Task { [engine, key = observed.key] in try await engine.read(key: key) }.result
      if case .success(let bytes) = read { take(bytes.map(StoredContent.bytes) ?? .absent) }
      throw error
    }
  }

  /// Reads the stored value, unless it has been read since the subscription to its changes and cannot expire. Throws an
  /// error of the background load once.
  private func load() async throws {
    // The subscription precedes the read, so that no later change is missed.
    if await followIfNeeded() {
      loading.withLock { if case .done = $0 { $0 = .pending } }
    }
    switch loading.withLock({ $0 }) {
    case .done: if mayExpire { try await read() }
    case .failed(let error):
      loading.withLock { $0 = .pending }
      throw error
    case .pending: try await read()
    }
  }

  private func read() async throws {
    do {
      let bytes = try await engine.read(key: observed.key)
      take(bytes.map(StoredContent.bytes) ?? .absent)
    } catch let error as CancellationError {
      throw error
    } catch {
      take(.unreadable(StorageError(reading: observed.key, error)), keepingValue: true)
      throw error
    }
    _ = try observed.unobserved()
  }

  private func write(_ item: Item) async throws {
    let bytes = try observed.encode(item)
    try await perform(.write(bytes, key: observed.key), .bytes(bytes))
  }

  private func remove() async throws { try await perform(.remove(key: observed.key), .absent) }

  /// Updates the value to content that was read, or that the engine has acknowledged.
  private func take(_ content: StoredContent, keepingValue keepsValue: Bool = false) {
    let change = observed.take(keepingValue: keepsValue) { content }
    if observed.isReadable { loading.withLock { $0 = .done } }
    observed.report(change)
  }
}
