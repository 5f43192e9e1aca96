import Foundation
import StockroomCore
import Synchronization

/// Runs the writer, and a few readers repeatedly until the writer is done.
///
/// A reader yields after each read, since otherwise neither it nor the engine may ever suspend.
func whileRunning(
  _ writer: @escaping @Sendable () async throws -> Void, readerCount: Int = 4,
  readers look: @escaping @Sendable (_ reader: Int) async throws -> Void
) async throws {
  let flag = Flag()
  try await withThrowingTaskGroup { group in
    group.addTask { @concurrent in
      defer { flag.set() }
      try await writer()
    }
    for reader in 0..<readerCount {
      group.addTask { @concurrent in
        repeat {
          try await look(reader)
          await Task.yield()
        } while !flag.isSet && !Task.isCancelled
      }
    }
    try await group.waitForAll()
  }
}

/// Runs the rounds of a writer one after the other, and a few readers repeatedly meanwhile. Adds rounds, up to ten
/// times as many, until the readers have read 200 times: otherwise the writer may be done before all of them have read.
/// Ends when a reader throws.
func whileRunning(
  rounds: Int, of writer: @escaping @Sendable (_ round: Int) async throws -> Void,
  readers look: @escaping @Sendable () async throws -> Void
) async throws {
  let (looks, hasFailed) = (AtomicCounter(), Flag())
  // If the engine's calls are slow, the readers read for long enough within fewer reads.
  let end = ContinuousClock.now + .seconds(5)
  try await whileRunning {
    var round = 0
    while !hasFailed.isSet,
      round < rounds || (looks.value < 200 && round < 10 * rounds && ContinuousClock.now < end)
    {
      try await writer(round)
      round += 1
      await Task.yield()
    }
  } readers: { _ in
    do {
      try await look()
    } catch {
      hasFailed.set()
      throw error
    }
    looks.increment()
  }
}

/// A flag that can be set once.
final class Flag: Sendable {
  private let state = Atomic(false)

  var isSet: Bool { state.load(ordering: .acquiring) }

  func set() { state.store(true, ordering: .releasing) }
}

/// Counts events in several tasks.
final class AtomicCounter: Sendable {
  private let state = Atomic(0)

  var value: Int { state.load(ordering: .relaxed) }

  /// Adds 1, and returns the sum.
  @discardableResult
  func increment() -> Int { state.wrappingAdd(1, ordering: .relaxed).newValue }
}

/// Performs the work for each number in a separate task, all concurrently. Returns the results in order.
@discardableResult
func gather<Value: Sendable>(
  _ numbers: Range<Int>, _ work: @escaping @Sendable (Int) async throws -> Value
) async throws -> [Value] {
  try await withThrowingTaskGroup { group in
    for number in numbers {
      group.addTask { @concurrent in (number, try await work(number)) }
    }
    var results: [(Int, Value)] = []
    for try await result in group { results.append(result) }
    return results.sorted { $0.0 < $1.0 }.map(\.1)
  }
}

/// How often this task can call ``yieldThread()`` until a call in another task has returned. After a fraction of that
/// number of turns, the call is in progress.
func turns(of call: @escaping @Sendable () async throws -> Void) async throws -> Int {
  let isDone = Flag()
  let task = Task { @concurrent in
    defer { isDone.set() }
    try await call()
  }
  var turns = 0
  while !isDone.isSet {
    await yieldThread()
    turns += 1
  }
  try await task.value
  return turns
}

/// Interrupts a call repeatedly, after other fractions of its duration each time: 0, 1/2, 1/4, 3/4, 1/8, and so on. At least this
/// often, and up to eight times as often within the time.
func interrupt(
  atLeast count: Int, within time: Duration, _ interruption: (_ fraction: Double) async throws -> Void
) async throws {
  let end = ContinuousClock.now + time
  var number = 0
  while number < count || (number < count * 8 && ContinuousClock.now < end) {
    // The digits of the binary number, mirrored at the point.
    var (digits, digit, fraction) = (number, 0.5, 0.0)
    while digits > 0 {
      if !digits.isMultiple(of: 2) { fraction += digit }
      (digits, digit) = (digits / 2, digit / 2)
    }
    try await interruption(fraction)
    number += 1
  }
}

/// Calls ``yieldThread()`` this many times, or until the flag is set: there may be millions of turns if they were counted
/// while the machine was busy.
func yieldThread(_ turns: Int, until isDone: Flag) async {
  for _ in 0..<turns {
    if isDone.isSet { return }
    await yieldThread()
  }
}

/// Starts a call in a task of its own. Returns that task when this one has called ``yieldThread()`` this many times since then, or the
/// call has returned.
func started<Value: Sendable>(
  _ call: @escaping @Sendable () async throws -> Value, turns: Int
) async -> Task<Value, any Error> {
  let (isStarted, isDone) = (Flag(), Flag())
  let task = Task { @concurrent in
    isStarted.set()
    defer { isDone.set() }
    return try await call()
  }
  while !isStarted.isSet { await yieldThread() }
  await yieldThread(turns, until: isDone)
  return task
}

/// Lets other tasks run, and other threads, which the awaited call may need.
func yieldThread() async {
  await Task.yield()
  sched_yield()
}

/// Gives other tasks, in particular those on the main actor, a chance to run.
func letOthersRun() async { for _ in 0..<20 { await Task.yield() } }

/// Waits briefly between two checks of a condition, so that polling does not use up a processor. Does not wait in a
/// cancelled task.
func letTimePass() async {
  // Only throws because of cancellation, which the caller checks.
  do { try await Task.sleep(for: .milliseconds(1)) } catch {}
}

/// Waits until tasks of all kinds have had a turn: those on the threads of the check, on the main actor if the caller
/// is there, and on the cooperative pool, where other tasks may delay them indefinitely.
///
/// Timeouts are counted in such turns, so that a busy machine does not look like a hang.
func yieldToAllThreads() async throws {
  await Task.detached(priority: Task.currentPriority) {}.value
  try await Task.sleep(for: .milliseconds(1))
}
