import StockroomCore

/// An engine that fails or blocks calls on request, for tests of code that uses an engine.
///
/// It passes every call to the wrapped engine, records it in ``calls``, and otherwise changes nothing.
///
/// ```swift
/// let engine = FailingStorageEngine(try SQLiteStorageEngine(directory: directory))
/// let notes = try await Store<Note>(storage: engine)
///
/// engine.failCall(where: \.isWrite)
/// await #expect(throws: StorageError.self) { try await notes.insert(note) }
/// #expect(notes.items.isEmpty)
///
/// try await notes.insert(many)
/// #expect(engine.calls.last?.keys.count == many.count)  // one request for all of them
/// ```
///
/// To keep a call in progress for as long as a test needs it:
///
/// ```swift
/// engine.hold()
/// async let insertion: Void = notes.insert(note)
/// try await engine.waitForHeldCalls()
/// #expect(notes.items.isEmpty)
/// engine.release()
/// try await insertion
/// ```
///
/// Calls of `changes()` fail or are held only if a test requests that explicitly, since a `Store` calls it by
/// itself and continues without a stream.
///
/// All methods may be used from any task at any time.
public final class FailingStorageEngine: Sendable {
  /// When a call fails.
  public enum Timing: Sendable {
    /// Before the call has any effect.
    case beforehand
    /// After the call has taken effect, as when an acknowledgement is lost.
    case afterwards
  }

  private struct Fault {
    let id: Int
    /// The number of calls that succeed before it; nil if it fails every call.
    var callsToSkip: Int?
    let error: any Error
    let timing: Timing
    let matches: @Sendable (Call) -> Bool
  }

  private struct State {
    var nextID = 0
    var faults: [Fault] = []
    var calls: [Call] = []
    var bytesWritten = 0
    var isAdmitted: (@Sendable (Call) -> Bool)?
    var held: [Int: Signal] = [:]
    var watchers: [(heldCalls: Int, signal: Signal)] = []
  }

  /// Wakes one waiter by finishing the stream, without yielding an element.
  private typealias Signal = AsyncStream<Never>.Continuation

  let base: any StorageEngine
  private let state = MutexProtected(State())

  /// Creates an engine that behaves like `base` until a fault is added.
  public init(_ base: any StorageEngine) { self.base = base }

  // MARK: Failing

  /// Makes the `number`-th call from now fail, once: 1 is the next.
  ///
  /// Only calls that `matches` accepts are counted. If several faults are due at the same call, the call throws the error
  /// of the fault that was added first, and the others are used up too, except for those of
  /// ``failEveryCall(with:_:where:)``.
  public func failCall(
    _ number: Int = 1, with error: any Error = StorageError(.io, "A fault of the test."),
    _ timing: Timing = .beforehand,
    where matches: @escaping @Sendable (Call) -> Bool = { $0.method != .changes }
  ) {
    addFault(callsToSkip: max(number, 1) - 1, error, timing, matches)
  }

  /// Makes every call that `matches` accepts fail, until ``clearFaults()``.
  public func failEveryCall(
    with error: any Error = StorageError(.io, "A fault of the test."),
    _ timing: Timing = .beforehand,
    where matches: @escaping @Sendable (Call) -> Bool = { $0.method != .changes }
  ) {
    addFault(callsToSkip: nil, error, timing, matches)
  }

  /// Removes every fault added by ``failCall(_:with:_:where:)`` and ``failEveryCall(with:_:where:)``.
  public func clearFaults() { state.withLock { $0.faults = [] } }

  private func addFault(
    callsToSkip: Int?, _ error: any Error, _ timing: Timing,
    _ matches: @escaping @Sendable (Call) -> Bool
  ) {
    state.withLock { state in
      state.faults.append(
        Fault(
          id: state.nextID, callsToSkip: callsToSkip, error: error, timing: timing, matches: matches))
      state.nextID += 1
    }
  }

  // MARK: Holding

  /// Holds every later call that `matches` accepts, before it reaches the wrapped engine, until ``release()``.
  ///
  /// Whether a call fails is decided when it arrives. A held call whose task is cancelled throws
  /// `CancellationError` and has no effect (rule C4).
  public func hold(where matches: @escaping @Sendable (Call) -> Bool = { $0.method != .changes }) {
    state.withLock { $0.isAdmitted = { !matches($0) } }
  }

  /// Resumes the held calls and stops holding later ones.
  public func release() {
    let held = state.withLock { state in
      defer { state.held = [:] }
      state.isAdmitted = nil
      return Array(state.held.values)
    }
    for signal in held { signal.finish() }
  }

  /// Waits until at least this many calls are held at the same time.
  ///
  /// - Throws: `CancellationError`.
  public func waitForHeldCalls(_ count: Int = 1) async throws {
    let (stream, signal) = AsyncStream<Never>.makeStream()
    let isReached = state.withLock { state in
      if state.held.count < count { state.watchers.append((count, signal)) }
      return state.held.count >= count
    }
    if isReached { return }
    for await _ in stream {}
    try Task.checkCancellation()
  }

  // MARK: Counting

  /// All calls since creation or the last ``resetCalls()``, in order of arrival, including failed and held
  /// calls.
  public var calls: [Call] { state.withLock { $0.calls } }

  /// The number of calls in ``calls``.
  public var callCount: Int { state.withLock { $0.calls.count } }

  /// The total size of the values in the arguments of calls that the wrapped engine has completed without an error.
  public var bytesWritten: Int { state.withLock { $0.bytesWritten } }

  /// Empties ``calls`` and sets ``bytesWritten`` to zero.
  public func resetCalls() {
    state.withLock { state in
      state.calls = []
      state.bytesWritten = 0
    }
  }

  // MARK: Passing on

  /// Performs a call, applying the faults and holds that match it.
  func pass<Result>(_ call: Call, to work: () async throws -> Result) async throws -> Result {
    let fault = arrival(of: call)
    try await waitWhileHeld(call)
    if let fault, fault.timing == .beforehand { throw fault.error }
    let result = try await work()
    state.withLock { $0.bytesWritten += call.byteCount }
    if let fault { throw fault.error }
    return result
  }

  /// Records the call. Returns the fault to throw, if any.
  private func arrival(of call: Call) -> Fault? {
    // The tests' closures are called outside the lock, because they may call this engine.
    let matching = Set(state.withLock { $0.faults }.filter { $0.matches(call) }.map(\.id))
    return state.withLock { state in
      state.calls.append(call)
      let spent = state.faults.filter { matching.contains($0.id) && ($0.callsToSkip ?? 0) == 0 }
      state.faults.removeAll { matching.contains($0.id) && $0.callsToSkip == 0 }
      for index in state.faults.indices where matching.contains(state.faults[index].id) {
        state.faults[index].callsToSkip? -= 1
      }
      return spent.first
    }
  }

  private func waitWhileHeld(_ call: Call) async throws {
    guard let isAdmitted = state.withLock({ $0.isAdmitted }), !isAdmitted(call) else { return }
    let (stream, signal) = AsyncStream<Never>.makeStream()
    let (id, reached) = state.withLock { state -> (Int, [Signal]) in
      guard state.isAdmitted != nil else { return (-1, [signal]) }  // released meanwhile
      let id = state.nextID
      state.nextID += 1
      state.held[id] = signal
      let reached = state.watchers.filter { $0.heldCalls <= state.held.count }.map(\.signal)
      state.watchers.removeAll { $0.heldCalls <= state.held.count }
      return (id, reached)
    }
    for signal in reached { signal.finish() }
    for await _ in stream {}
    state.withLock { _ = $0.held.removeValue(forKey: id) }
    try Task.checkCancellation()
  }
}
