/// A stream of all changes in a place, including those of other engines and processes. ``StorageEngine/changes()`` returns it
/// (rules X1 to X5).
///
/// ```swift
/// for await change in try await engine.changes() {
///   switch change {
///   case .keys(let keys): show(try await engine.readDataAndKeys(keys: Array(keys)))
///   case .everything: show(try await engine.readAllDataAndKeys())
///   }
/// }
/// ```
///
/// A slow subscriber receives several changes as one element, and ``StorageChange/everything`` instead of more keys than the
/// stream buffers. Only one consumer may iterate at a time. The stream ends when the engine is closed; iteration also ends when the
/// task of the consumer is cancelled. Releasing the last copy of the stream and its iterators ends the subscription.
public struct StorageChanges: AsyncSequence, Sendable {
  /// What has changed.
  public typealias Element = StorageChange
  /// The stream never throws.
  public typealias Failure = Never

  /// How many keys are buffered for a subscriber by default. If there are more, they become ``StorageChange/everything``.
  public static let defaultKeyLimit = 1_000

  private let subscription: Subscription
  /// The origin whose changes the stream leaves out.
  package let origin: ChangeOrigin?
  /// Applied to each change when it is received. Nil if changes are received as they are.
  private let transform: Transform?

  fileprivate typealias Transform = @Sendable (StorageChange) -> StorageChange?

  private init(_ subscription: Subscription, leavingOut origin: ChangeOrigin?, _ transform: Transform? = nil)
  {
    (self.subscription, self.origin, self.transform) = (subscription, origin, transform)
  }

  /// Creates a stream and its continuation, for your own engines.
  ///
  /// - Parameters:
  ///   - keyLimit: How many keys the stream buffers until they are received.
  ///   - origin: The origin whose changes the engine does not send to the stream: see ``ChangeOrigin``.
  public static func makeStream(
    keyLimit: Int = defaultKeyLimit, leavingOut origin: ChangeOrigin? = nil
  ) -> (changes: StorageChanges, continuation: Continuation) {
    let buffer = ChangeBuffer(keyLimit: keyLimit)
    let changes = StorageChanges(Subscription(buffer), leavingOut: origin)
    return (changes, Continuation(buffer: buffer))
  }

  /// A stream that replaces this one and applies `transform` to each change when it is received, leaving out those for which it
  /// returns nil.
  package func mapping(_ transform: @escaping @Sendable (StorageChange) -> StorageChange?) -> StorageChanges {
    let first = self.transform
    return StorageChanges(subscription, leavingOut: origin) { change in
      (first.map { $0(change) } ?? change).flatMap(transform)
    }
  }

  /// The pending change, without waiting; nil if there is none.
  package func takePending() -> StorageChange? {
    let change = subscription.buffer.takePending()
    return transform.map { change.flatMap($0) } ?? change
  }

  /// Whether the stream has ended and every change has been received.
  package var hasEnded: Bool { subscription.buffer.hasEnded }

  /// An iterator over the changes that no iterator of the stream has received yet.
  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(subscription: subscription, transform: transform)
  }

  /// Waits for changes.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let subscription: Subscription
    fileprivate let transform: Transform?

    /// The next change, or nil once the stream has ended or the task has been cancelled.
    public mutating func next() async -> StorageChange? {
      while let change = await subscription.buffer.next() {
        guard let transform else { return change }
        if let mapped = transform(change) { return mapped }
      }
      return nil
    }

    /// As ``next()``.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> StorageChange? {
      await next()
    }
  }

  /// Sends changes to a subscriber. It may be used from any thread.
  public struct Continuation: Sendable {
    fileprivate let buffer: ChangeBuffer

    /// Sends a change. Call it once the change can be read. Never blocks.
    public func send(_ change: StorageChange) { buffer.send(change) }

    /// Ends the stream once the changes that were sent have been received.
    public func finish() { buffer.finish() }

    /// Calls `body` once when no consumer is left, immediately if that is the case already.
    public func onTermination(_ body: @escaping @Sendable () -> Void) { buffer.onTermination(body) }
  }

  /// The consumer's half. When it is released, no consumer is left.
  fileprivate final class Subscription: Sendable {
    let buffer: ChangeBuffer

    init(_ buffer: ChangeBuffer) { self.buffer = buffer }

    deinit { buffer.terminate() }
  }
}

/// The changes that a subscriber has not received yet.
private final class ChangeBuffer: Sendable {
  private struct State {
    var pending = PendingChanges()
    var isFinished = false
    var isTerminated = false
    var nextID = 0
    var waiting: [(id: Int, continuation: CheckedContinuation<StorageChange?, Never>)] = []
    var terminationHandlers: [@Sendable () -> Void] = []
  }

  private let state = MutexProtected(State())
  private let keyLimit: Int

  init(keyLimit: Int) { self.keyLimit = max(0, keyLimit) }

  func send(_ change: StorageChange) {
    let (waiter, next) = state.withLock {
      state -> (CheckedContinuation<StorageChange?, Never>?, StorageChange?) in
      if state.isFinished { return (nil, nil) }
      state.pending.add(change, keyLimit: keyLimit)
      if state.waiting.isEmpty || state.pending.isEmpty { return (nil, nil) }
      return (state.waiting.removeFirst().continuation, state.pending.take())
    }
    waiter?.resume(returning: next)
  }

  func next() async -> StorageChange? {
    let id = state.withLock { state in
      state.nextID += 1
      return state.nextID
    }
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let (isOver, change) = state.withLock { state -> (Bool, StorageChange?) in
          // If the task was cancelled before this point, the cancellation handler found no continuation. A pending change stays
          // for the next consumer.
          if Task.isCancelled { return (true, nil) }
          if let pending = state.pending.take() { return (true, pending) }
          if state.isFinished { return (true, nil) }
          state.waiting.append((id, continuation))
          return (false, nil)
        }
        if isOver { continuation.resume(returning: change) }
      }
    } onCancel: {
      let waiter = state.withLock { state in
        state.waiting.firstIndex { $0.id == id }.map { state.waiting.remove(at: $0).continuation }
      }
      waiter?.resume(returning: nil)
    }
  }

  func takePending() -> StorageChange? { state.withLock { $0.pending.take() } }

  var hasEnded: Bool { state.withLock { $0.isFinished && $0.pending.isEmpty } }

  func finish() {
    let waiting = state.withLock { state in
      state.isFinished = true
      defer { state.waiting = [] }
      return state.waiting
    }
    for waiter in waiting { waiter.continuation.resume(returning: nil) }
  }

  func terminate() {
    finish()
    let handlers = state.withLock { state in
      state.isTerminated = true
      state.pending = PendingChanges()
      defer { state.terminationHandlers = [] }
      return state.terminationHandlers
    }
    for handler in handlers { handler() }
  }

  func onTermination(_ body: @escaping @Sendable () -> Void) {
    let isTerminated = state.withLock { state in
      if !state.isTerminated { state.terminationHandlers.append(body) }
      return state.isTerminated
    }
    if isTerminated { body() }
  }
}

/// Several changes that are received as one. They are added in place, so that the cost of a write does not grow with the number of
/// pending changes.
private struct PendingChanges {
  private var keys: Set<CacheKey> = []
  private var isEverything = false

  var isEmpty: Bool { keys.isEmpty && !isEverything }

  mutating func add(_ change: StorageChange, keyLimit: Int) {
    if isEverything { return }
    if case .keys(let more) = change {
      if keys.isEmpty { keys = more } else { keys.formUnion(more) }
      if keys.count <= keyLimit { return }
    }
    (keys, isEverything) = ([], true)
  }

  mutating func take() -> StorageChange? {
    if isEmpty { return nil }
    defer { self = PendingChanges() }
    return isEverything ? .everything : .keys(keys)
  }
}
