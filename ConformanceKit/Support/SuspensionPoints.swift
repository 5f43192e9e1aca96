import StockroomCore

// Calls that are held where they suspend. Whatever is done meanwhile happens between two parts of the call, however fast the engine is.
// A call that waits for other threads of its engine has few such points.

/// The suspension point at which a call is held.
final class HoldPoint: Sendable {
  /// Longer than any call takes meanwhile.
  private static let longest = Duration.seconds(600)

  private let number: Int?
  private let jobs = AtomicCounter()
  private let reached = Flag()
  private let released = Latch()

  /// - Parameter number: The number of the suspension point, from 1; if nil, they are only counted.
  init(at number: Int? = nil) { self.number = number }

  /// How often the call has suspended and continued.
  var suspensions: Int { jobs.value - 1 }

  var isReached: Bool { reached.isSet }

  func release() { released.signal() }

  /// The call's thread calls this before each job of the call.
  func pass() {
    // The first job begins the call.
    guard jobs.increment() - 1 == number else { return }
    reached.set()
    _ = released.wait(for: Self.longest)
  }
}

/// Makes a call, and holds it at a suspension point until the closure has returned. A call with fewer suspension points has returned
/// before. Returns the result of the call.
func held<Value: Sendable>(
  at number: Int, _ call: @escaping @Sendable () async throws -> Value,
  meanwhile: (Task<Value, any Error>) async throws -> Void
) async throws -> Result<Value, any Error> {
  let (point, isDone) = (HoldPoint(at: number), Flag())
  let thread = CheckExecutor(holding: point)
  defer { thread.stop() }
  let task = Task(executorPreference: thread) { @concurrent in
    defer { isDone.set() }
    return try await call()
  }
  while !point.isReached, !isDone.isSet { await yieldThread() }
  do {
    try await meanwhile(task)
  } catch {
    point.release()
    _ = await task.result
    throw error
  }
  point.release()
  return await task.result
}

/// Makes a call, and another one where it is held at a suspension point. The other call need not have returned when the first continues:
/// it may wait for that one. Returns the result of the first call once both have returned.
func held<Value: Sendable>(
  at number: Int, _ call: @escaping @Sendable () async throws -> Value,
  beside other: @escaping @Sendable () async throws -> Void
) async throws -> Result<Value, any Error> {
  var task: Task<Void, any Error>?
  let result = try await held(at: number, call) { _ in task = await started(other, turns: 1_000) }
  try await task?.value
  return result
}

/// Makes a call, and returns the numbers of its suspension points: all, or this many of them.
func suspensionPoints(
  of call: @escaping @Sendable () async throws -> Void, atMost most: Int
) async throws -> [Int] {
  let point = HoldPoint()
  let thread = CheckExecutor(holding: point)
  defer { thread.stop() }
  try await Task(executorPreference: thread) { @concurrent in try await call() }.value
  let count = point.suspensions
  guard count > 0 else { return [] }
  return count <= most ? Array(1...count) : (1...most).map { count * $0 / most }
}
