import Observation
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The value that the present content of a key stands for, decoded once, with those who observe it.
///
/// Content is taken, and put into the buffers of the streams, behind one lock: no stream misses a change or
/// sees two in the wrong order. Observers are told afterwards and outside of it, since their closures may
/// call anything.
final class ObservedValue<Item: StorableItem>: Observable, Sendable {
  private struct State: Sendable {
    /// Nil until somebody has looked.
    var content: StoredContent?
    /// Nil where the default applies.
    var item: Item?
    var failure: StorageError?
  }

  /// What observers have to be told about.
  struct Change: Sendable {
    var affectsValue = false
    var affectsFailure = false
  }

  let key: CacheKey
  private let defaultValue: Item
  private let codec: any Codec
  private let state: MutexProtected<State>
  private let registrar = ObservationRegistrar()
  private let broadcaster = Broadcaster<Item>()

  /// - Parameter content: what is taken to be stored until there is word of it. The first word is a change of this,
  ///   or, if this is nil, nothing to tell anybody about.
  init(defaultValue: Item, key: CacheKey, codec: any Codec, assuming content: StoredContent? = nil) {
    self.defaultValue = defaultValue
    self.key = key
    self.codec = codec
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

  /// The value, or why it is not known.
  func get() throws -> Item {
    registrar.access(self, keyPath: \.value)
    registrar.access(self, keyPath: \.failure)
    return try unobserved()
  }

  /// As ``get()``, for those who are about to change it.
  func unobserved() throws -> Item {
    let state = state.withLock { $0 }
    if let failure = state.failure { throw failure }
    return state.item ?? defaultValue
  }

  /// Whether anybody has looked at the value, and so may want to hear of changes.
  var hasBeenRead: Bool { state.withLock { $0.content != nil } }

  /// Whether what was last heard of could be decoded.
  var isKnown: Bool { state.withLock { $0.failure == nil } }

  func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    state.withLock { state in
      broadcaster.stream(startingWith: state.item ?? defaultValue, bufferingPolicy: bufferingPolicy)
    }
  }

  func encode(_ item: Item) throws -> Data { try codec.encodeForRoundTrip(item, for: key) }

  /// Makes what `read` finds the present content, and gives back what has to be passed to ``report(_:)``.
  ///
  /// What decodes, and what runs when the earlier value goes, is code of others that may look at this value. So both
  /// happen outside of the lock, and the content is read again before what it was decoded to takes effect.
  func take(_ read: () -> StoredContent) -> Change {
    var decoded: State?
    while true {
      switch state.withLock({ state in replace(&state, with: decoded, ifStored: read()) }) {
      case .undecoded(let content): decoded = decode(content)
      case .done(let change, earlier: _): return change
      }
    }
  }

  private enum Replacement: Sendable {
    /// Nothing has changed, since this has to be decoded first.
    case undecoded(StoredContent)
    /// The content is known. What was there before is to be let go of outside of the lock.
    case done(Change, earlier: State?)
  }

  private func replace(
    _ state: inout State, with decoded: State?, ifStored content: StoredContent
  ) -> Replacement {
    if let known = state.content, content.isSame(as: known) { return .done(Change(), earlier: nil) }
    guard let decoded, let known = decoded.content, content.isSame(as: known) else {
      return .undecoded(content)
    }
    let earlier = state
    state = decoded
    guard earlier.content != nil else { return .done(Change(), earlier: earlier) }
    let change = Change(
      affectsValue: earlier.item != nil || state.item != nil,
      affectsFailure: earlier.failure != nil || state.failure != nil)
    if change.affectsValue { broadcaster.send(state.item ?? defaultValue) }
    return .done(change, earlier: earlier)
  }

  /// Tells observers of a change that has been made. Call it without holding a lock.
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
        return State(content: content, item: try codec.decode(Item.self, from: bytes, of: key))
      } catch {
        return State(content: content, failure: StorageError(whyUnknown: key, error))
      }
    }
  }
}

extension StorageError {
  /// Why the value of a key is not known: the error itself, or one that contains it.
  init(whyUnknown key: CacheKey, _ error: any Error) {
    self =
      error as? StorageError
      ?? StorageError(.io, "The value of \(key) could not be read.", underlying: error)
  }
}
