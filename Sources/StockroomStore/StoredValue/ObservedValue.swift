import Observation
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The decoded value of a key, with its observers and streams.
///
/// The content is replaced, and added to the buffers of the streams, under one lock: no stream misses a change or
/// receives two in the wrong order. Observers are notified after that and outside of the lock, since they may run
/// arbitrary code.
final class ObservedValue<Item: StorableItem>: Observable, Sendable {
  private struct State: Sendable {
    /// Nil until it has been read.
    var content: StoredContent?
    /// Nil if the default applies.
    var item: Item?
    /// The content that ``item`` has been decoded from: an earlier one if the current one could not be read.
    var source: StoredContent?
    var failure: StorageError?
  }

  /// The observable properties that a change affects.
  struct Change: Sendable {
    var affectsValue = false
    var affectsFailure = false
  }

  let key: CacheKey
  private let defaultValue: Item
  let codec: ItemCodec<Item>
  private let state: MutexProtected<State>
  private let registrar = ObservationRegistrar()
  private let broadcaster = Broadcaster<Item>()

  /// - Parameter content: The assumed content until the stored one is read. If nil, the first content that is read is not
  ///   reported as a change.
  init(defaultValue: Item, key: CacheKey, codec: any Codec, assuming content: StoredContent? = nil) {
    self.defaultValue = defaultValue
    self.key = key
    self.codec = ItemCodec(codec)
    state = MutexProtected(State(content: content))
  }

  var value: Item {
    registrar.access(self, keyPath: \.value)
    return state.withLock { $0.item } ?? defaultValue
  }

  var failure: StorageError? {
    registrar.access(self, keyPath: \.failure)
    return state.withLock { $0.failure }
  }

  /// The value, or the error of reading it.
  func get() throws -> Item {
    registrar.access(self, keyPath: \.value)
    registrar.access(self, keyPath: \.failure)
    return try unobserved()
  }

  /// Like ``get()``, without observing the value.
  func unobserved() throws -> Item {
    let state = state.withLock { $0 }
    if let failure = state.failure { throw failure }
    return state.item ?? defaultValue
  }

  /// Whether the value has been read, and so may be observed.
  var hasBeenRead: Bool { state.withLock { $0.content != nil } }

  /// Whether the last content could be read and decoded.
  var isReadable: Bool { state.withLock { $0.failure == nil } }

  func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    state.withLock { state in
      broadcaster.stream(startingWith: state.item ?? defaultValue, bufferingPolicy: bufferingPolicy)
    }
  }

  func encode(_ item: Item) throws -> Data { try codec.encodeForRoundTrip(item, for: key) }

  /// Updates the value to the content that `read` returns. Pass the result to ``report(_:)``.
  ///
  /// Decoding, and releasing the previous value, may run arbitrary code, which may use this value. Both happen outside of
  /// the lock, and the content is read again before its decoded value takes effect.
  ///
  /// - Parameter keepsValue: Whether only the failure changes, and not the value.
  func take(keepingValue keepsValue: Bool = false, _ read: () -> StoredContent) -> Change {
    var decoded: State?
    while true {
      switch state.withLock({ state in replace(&state, with: decoded, ifStored: read(), keepsValue) }) {
      case .undecoded(let content): decoded = decode(content)
      case .done(let change, earlier: _): return change
      }
    }
  }

  private enum Replacement: Sendable {
    /// Nothing has changed: the content has to be decoded first.
    case undecoded(StoredContent)
    /// The content is up to date. The earlier state is returned to be released outside of the lock.
    case done(Change, earlier: State?)
  }

  private func replace(
    _ state: inout State, with decoded: State?, ifStored content: StoredContent, _ keepsValue: Bool
  ) -> Replacement {
    if let known = state.content, content.isSame(as: known) { return .done(Change(), earlier: nil) }
    guard let decoded, let known = decoded.content, content.isSame(as: known) else {
      return .undecoded(content)
    }
    let earlier = state
    state = decoded
    // The same bytes count as the same value, even if a content in between could not be read.
    let isSame = earlier.item != nil && state.item != nil && earlier.source?.isSame(as: content) == true
    if keepsValue || isSame { (state.item, state.source) = (earlier.item, earlier.source) }
    guard earlier.content != nil else { return .done(Change(), earlier: earlier) }
    let change = Change(
      affectsValue: !keepsValue && !isSame && (earlier.item != nil || state.item != nil),
      affectsFailure: earlier.failure != nil || state.failure != nil)
    if change.affectsValue { _ = broadcaster.send(state.item ?? defaultValue) }
    return .done(change, earlier: earlier)
  }

  /// Notifies observers of a change. Call it without holding a lock.
  func report(_ change: Change) {
    if change.affectsValue { registrar.withMutation(of: self, keyPath: \.value) {} }
    if change.affectsFailure { registrar.withMutation(of: self, keyPath: \.failure) {} }
  }

  private func decode(_ content: StoredContent) -> State {
    switch content {
    case .absent: return State(content: content)
    case .unreadable(let failure): return State(content: content, failure: failure)
    case .bytes(let bytes):
      do {
        return State(content: content, item: try codec.decode(bytes, of: key), source: content)
      } catch {
        return State(content: content, failure: StorageError(reading: key, error))
      }
    }
  }
}

extension StorageError {
  /// An error of reading the value of a key: the error itself, or a `StorageError` that wraps it.
  init(reading key: CacheKey, _ error: any Error) {
    self =
      error as? StorageError
      ?? StorageError(.io, "The value of \(key) could not be read.", underlying: error)
  }
}
