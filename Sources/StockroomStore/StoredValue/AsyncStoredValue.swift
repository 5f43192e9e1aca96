import Observation
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A single value that is kept in any storage engine.
///
/// ```swift
/// @AsyncStoredValue(storage: engine, key: "draft") var draft = Draft()
///
/// try await $draft.valueHasLoaded()
/// draft.title                                      // what is stored, or that of the default
/// try await $draft.set(\.title, to: "Untitled")
/// ```
///
/// The value is read through the property and changed through its projection, the `$` form, which is this
/// class. What is stored is the codec's bytes, JSON unless you choose otherwise, as the entry of the key; a
/// key that is empty or too long for an engine is hashed (rule S8).
///
/// ## Loading
///
/// Loading begins in the background when the object is made. Until it is through the value is the default. If
/// it fails, because the engine fails or because the bytes cannot be decoded, then the value stays the
/// default and ``failure`` says why; the next operation that needs what is stored throws the error, and the
/// one after that tries again. Nothing that cannot be read is overwritten, but by ``set(_:)`` and
/// ``reset()``, which replace whatever there is.
///
/// ## Operations
///
/// Any number of tasks may call anything. Operations on one object are done one after another, in the order
/// of the calls, each as a whole (rule S1). The value changes once the engine has acknowledged it; a call
/// that throws leaves the value and the engine as they were (rule S2). Where an engine may have done its work
/// although it threw, as after `io`, the value is what is then found to be stored. An operation whose task is cancelled
/// before its turn throws `CancellationError` and does nothing. Coding takes place off the actor of the
/// caller.
///
/// Two objects with the same engine and key are not synchronised: each goes by what it loaded and wrote
/// itself. Make one and hand it around.
///
/// ## Observation
///
/// The value and ``failure`` are observable, once per operation, and after it took effect. In a class that is
/// `@Observable` itself write `@ObservationIgnored` before the property; the value stays observable. Storing
/// the same bytes again is no change. Observation can miss a change that another thread makes at the very
/// moment of looking; ``values`` cannot.
@propertyWrapper
public final class AsyncStoredValue<Item: StorableItem>: Sendable {
  private enum Loading: Sendable {
    case pending
    /// Nobody has been told yet.
    case failed(any Error)
    case done
  }

  private let engine: any StorageEngine
  private let observed: ObservedValue<Item>
  private let loading = MutexProtected(Loading.pending)
  /// Taken from the beginning, by the first attempt at loading.
  private let turnstile = Turnstile(isTaken: true)

  /// A value under a key, with a default for as long as nothing is stored.
  ///
  /// - Parameters:
  ///   - wrappedValue: the default. It is never stored of itself.
  ///   - storage: the engine to keep the value in.
  ///   - key: the name of the entry, of any length and content.
  ///   - codec: how the value becomes bytes.
  public init(
    wrappedValue: Item, storage: some StorageEngine, key: String, codec: some Codec = JSONCodec()
  ) {
    engine = storage
    observed = ObservedValue(
      defaultValue: wrappedValue, key: CacheKey(identifier: key), codec: codec, assuming: .absent)
    Task { [weak self] in await self?.loadInBackground() }
  }

  /// An optional value under a key: nil for as long as nothing is stored.
  public convenience init(
    storage: some StorageEngine, key: String, codec: some Codec = JSONCodec()
  ) where Item: ExpressibleByNilLiteral {
    self.init(wrappedValue: nil, storage: storage, key: key, codec: codec)
  }

  /// The value as far as it is known: the default until it has loaded, then what the engine acknowledged
  /// last. O(1).
  public var wrappedValue: Item { observed.value }

  /// The operations, and what else there is to know of the value.
  public var projectedValue: AsyncStoredValue<Item> { self }

  /// Why the value could not be loaded: code `decodingFailed`, or what the engine threw. Nil if all is well.
  public var failure: StorageError? { observed.failure }

  /// Returns once the value is what is stored. It waits for the operations that were called before; if the value has
  /// been loaded it does nothing else.
  ///
  /// - Throws: what the engine throws; `StorageError` with code `decodingFailed`; `CancellationError`. The next call
  ///   tries again.
  public func valueHasLoaded() async throws {
    try await inTurn { try await self.load() }
  }

  /// The value, once it is what is stored. Waits and throws as ``valueHasLoaded()``.
  public func get() async throws -> Item {
    try await valueHasLoaded()
    return try observed.get()
  }

  /// The present value, then the value after each change, in order, for each subscriber of its own.
  ///
  /// No change is left out, however slowly the stream is read, nor between the present value and the first
  /// change. What has not been read yet is kept in memory. The stream ends when this object is gone.
  public var values: AsyncStream<Item> { values(bufferingPolicy: .unbounded) }

  /// As ``values``, with a limit to what is kept for a subscriber that is slow:
  /// `.bufferingNewest(1)` for the present value only. A value that is left out may be let go of in the midst of a
  /// change: if it is a class, its `deinit` must not use this object.
  public func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    observed.values(bufferingPolicy: bufferingPolicy)
  }

  /// Stores a value, whatever was stored before, be it readable or not. One write.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`; what the engine throws; `CancellationError`.
  public func set(_ value: Item) async throws {
    try await inTurn { try await self.write(value) }
  }

  /// Removes what is stored, whatever it is: the value is the default again.
  ///
  /// - Throws: what the engine throws; `CancellationError`.
  public func reset() async throws {
    try await inTurn { try await self.perform(.remove(key: self.observed.key), .absent) }
  }

  /// Stores what the closure makes of the present value, and nothing if it throws. No other operation on this
  /// object comes between. One write, after loading if that has not been done.
  ///
  /// - Throws: what the closure throws; `StorageError` with code `encodingFailed`; as ``valueHasLoaded()`` if the
  ///   present value is not known; what the engine throws.
  public func update(_ change: @Sendable (inout Item) throws -> Void) async throws {
    try await updateIfNeeded { item in
      try change(&item)
      return true
    }
  }

  /// As ``update(_:)``, but for a closure that may find that there is nothing to do, and returns false then.
  func updateIfNeeded(_ change: @Sendable (inout Item) throws -> Bool) async throws {
    try await inTurn {
      try await self.load()
      var item = try self.observed.unobserved()
      if try change(&item) { try await self.write(item) }
    }
  }
}

extension AsyncStoredValue: Observable {}

/// What is done in turn.
extension AsyncStoredValue {
  private func inTurn(_ operation: @concurrent @Sendable () async throws -> Void) async throws {
    await turnstile.enter()
    defer { turnstile.leave() }
    try Task.checkCancellation()
    try await operation()
  }

  private func loadInBackground() async {
    defer { turnstile.leave() }
    do {
      try await load()
    } catch {
      loading.withLock { $0 = .failed(error) }
    }
  }

  /// Does one operation of the engine, and makes known what is stored then.
  ///
  /// If it throws, and may have had its effect all the same, what is stored is read again: nothing may build on a value
  /// that is no longer there. If that cannot be done now, the next operation does it.
  private func perform(_ operation: StorageOperation, _ content: StoredContent) async throws {
    do {
      try await engine.apply([operation])
      take(content)
    } catch {
      guard !engine.hasSurelyDoneNothing(of: [operation], after: error) else { throw error }
      loading.withLock { $0 = .pending }
      // In a task of its own, which is not cancelled along with this one.
      let read = await Task { [engine, key = observed.key] in try await engine.read(key: key) }.result
      if case .success(let bytes) = read { take(bytes.map(StoredContent.bytes) ?? .absent) }
      throw error
    }
  }

  /// Reads what is stored, unless that has been done, or has failed and this call is the first to hear of it.
  private func load() async throws {
    switch loading.withLock({ $0 }) {
    case .done: return
    case .failed(let error):
      loading.withLock { $0 = .pending }
      throw error
    case .pending:
      do {
        let bytes = try await engine.read(key: observed.key)
        take(bytes.map(StoredContent.bytes) ?? .absent)
      } catch let error as CancellationError {
        throw error
      } catch {
        take(.unreadable(StorageError(whyUnknown: observed.key, error)))
        throw error
      }
      _ = try observed.unobserved()
    }
  }

  private func write(_ item: Item) async throws {
    let bytes = try observed.encode(item)
    try await perform(.write(bytes, key: observed.key), .bytes(bytes))
  }

  /// Makes content known that was read, or that the engine acknowledged.
  private func take(_ content: StoredContent) {
    let change = observed.take { content }
    if observed.isKnown { loading.withLock { $0 = .done } }
    observed.report(change)
  }
}
