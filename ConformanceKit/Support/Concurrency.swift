import Synchronization
import StockroomCore

/// Runs the writer, and a few readers repeatedly until the writer is done.
///
/// A reader lets other tasks run after each look, since neither it nor the engine may ever suspend otherwise.
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

/// Runs the rounds of a writer one after the other, and a few readers again and again meanwhile. Adds rounds, up to ten times
/// as many, until the readers have looked 200 times: a writer may be through before they have looked at all. Ends once a reader
/// throws.
func whileRunning(
  rounds: Int, of writer: @escaping @Sendable (_ round: Int) async throws -> Void,
  readers look: @escaping @Sendable () async throws -> Void
) async throws {
  let (looks, hasFailed) = (AtomicCounter(), Flag())
  // Readers of an engine whose calls take long have looked long before they have done so as often.
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

/// Something that has happened, or not yet.
final class Flag: Sendable {
  private let state = Atomic(false)

  var isSet: Bool { state.load(ordering: .acquiring) }

  func set() { state.store(true, ordering: .releasing) }
}

/// Counts what several tasks do.
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

/// How often this task can let others run until a call in another one has returned: some fraction of it is in the middle of
/// such a call.
func turns(of call: @escaping @Sendable () async throws -> Void) async throws -> Int {
  let isDone = Flag()
  let task = Task { @concurrent in
    defer { isDone.set() }
    try await call()
  }
  var turns = 0
  while !isDone.isSet {
    await Task.yield()
    turns += 1
  }
  try await task.value
  return turns
}

/// Gives other tasks, those on the main actor above all, the chance to do what they can do now.
func letOthersRun() async { for _ in 0..<20 { await Task.yield() } }

/// Waits for a moment, or not at all in a task that is cancelled: between two looks at what takes its time. Whoever looks all the
/// time takes a processor from those that are waited for.
func letTimePass() async {
  // It throws nothing but the cancellation, which is the caller's to see.
  do { try await Task.sleep(for: .milliseconds(1)) } catch {}
}

/// Waits for a moment, in which everybody's tasks have gone on: those on the threads of the check, on the main actor if
/// the caller is there, and on the cooperative pool, where others may hold them up for as long as they like.
///
/// Timeouts are counted in such turns where a busy machine must not look like a hang.
func yieldToAllThreads() async throws {
  await Task.detached(priority: Task.currentPriority) {}.value
  try await Task.sleep(for: .milliseconds(1))
}
