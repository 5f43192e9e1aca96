#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import Synchronization

// Neither waits nor long calls hold up other tasks: rule C5.

extension CheckDefinition {
  @CheckList static var cooperationChecks: [CheckDefinition] {
    Check(
      .c5, "cooperation.while-writing",
      "an unrelated task keeps running while up to a thousand tasks per processor write"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await checkHeartbeat(context) { index in try await engine.write(data("v"), key: keys[index % 16]) }
    }
    Check(
      .c5, "cooperation.while-removing",
      "an unrelated task keeps running while many tasks remove"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await engine.write(entries(keys))
      try await checkHeartbeat(context) { index in
        if index.isMultiple(of: 2) {
          try await engine.remove(key: keys[index % 16])
        } else {
          try await engine.write(entries([keys[index % 16], keys[index % 7]]))
        }
      }
    }
    Check(
      .c5, "cooperation.while-writing-batches",
      "an unrelated task keeps running while many tasks write batches"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await checkHeartbeat(context) { index in
        if index.isMultiple(of: 2) {
          try await engine.apply([.remove(key: keys[index % 16]), .write(data("v"), key: keys[index % 5])])
        } else {
          try await engine.write(entries([keys[index % 16], keys[index % 7], keys[index % 3]]))
        }
      }
    }
    Check(
      .c5, "cooperation.while-reading",
      "an unrelated task keeps running while many tasks read single entries and everything"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await engine.write(keys.map { ($0, noise(10_000)) })
      try await checkHeartbeat(context) { index in
        switch index % 4 {
        case 0: _ = try await engine.readAllDataAndKeys()
        case 1: _ = try await engine.read(keys: keys)
        case 2: _ = try await engine.scan(.all, limit: nil)
        default: _ = try await engine.read(key: keys[index % 16])
        }
      }
    }
    Check(
      .c5, "cooperation.waits-elsewhere",
      "no call blocks its caller's thread, not even for a millisecond, and neither does close() while others "
        + "are in progress"
    ) { try await checkCallerWaits($0) }
    for method in [ReadMethod.readAllData, .readAllDataAndKeys, .readAllEntries, .scan] {
      Check(
        .c5, "cooperation.\(method.rawValue)-gives-way",
        "a write gets its turn within a second while every processor calls \(method.call) in a loop"
      ) { context in
        let engine = try await context.open()
        let affordable = try await context.affordableEntries(within: 4)
        let count = min(2_000, max(50, affordable.reads / CheckExecutor.usualCount))
        if count < 2_000 { context.noteShortfall("\(count) of 2,000 entries") }
        let keys = keys(count)
        try await engine.write(keys.map { (key: $0, data: noise(200)) })
        try await checkGivingWay(in: engine, during: method.call, within: context.longestTurn) {
          _ = try await method.found(of: keys, in: $0)
        }
      }
    }
  }
}

/// How long the heartbeat may stop, however busy the machine is: far more than the time in which tasks that only
/// compute let another task run.
private let timeout = Duration.seconds(2)

/// How long calls are made: long enough to detect calls that block their callers' threads, even if each call has a high
/// latency.
private let duration = timeout * 3

/// Fails if the heartbeat stops three times in a row. Once is not enough: other work in this process may have blocked
/// the threads of the pool.
private func checkHeartbeat(
  _ context: CheckContext, _ call: @escaping @Sendable (_ index: Int) async throws -> Void
) async throws {
  let call = allowingTimeouts(call, context)
  let callCount = try await affordableCallCount(context, call)
  for _ in 0..<2 {
    let (pause, allowed) = try await longestPause(context, during: callCount, call)
    if pause <= allowed { return }
  }
  let (pause, allowed) = try await longestPause(context, during: callCount, call)
  try expect(
    pause <= allowed,
    "an unrelated task could not run for \(pause.inSeconds) s while the process used no processor time; the "
      + "load of the machine explains at most \(allowed.inSeconds) s")
}

/// Wraps the call: with a server, it may exceed its time limit, since so many other calls wait (rule N1).
private func allowingTimeouts(
  _ call: @escaping @Sendable (_ index: Int) async throws -> Void, _ context: CheckContext
) -> @Sendable (_ index: Int) async throws -> Void {
  guard context.capabilities.contains(.networked) else { return call }
  return { index in
    do {
      try await call(index)
    } catch let failure as CallFailure {
      let code = (failure.error as? StorageError)?.code
      guard code == .unavailable || code == .outcomeUnknown else { throw failure }
    }
  }
}

/// How many calls are made at the same time: a thousand for each processor, or as many as the engine completes within
/// ``duration``.
///
/// An engine that makes one call after the other would need minutes for a thousand. If it blocks the threads of its
/// callers, fewer calls block them for just as long.
private func affordableCallCount(
  _ context: CheckContext, _ call: @escaping @Sendable (_ index: Int) async throws -> Void
) async throws -> Int {
  let processors = ProcessInfo.processInfo.activeProcessorCount
  let (most, together) = (1024 * processors, 4 * max(2, processors))
  var best = Duration.seconds(1_000)
  for _ in 0..<3 {
    let time = try await ContinuousClock().measure {
      try await gather(0..<together) { index in try await call(index) }
    }
    best = min(best, time)
    context.noteProgress()
  }
  let affordable = Int(duration.inSeconds / max(best.inSeconds, 1e-6) * Double(together))
  let count = min(most, max(64, affordable))
  if count < most { context.noteShortfall("\(count) of \(most) calls at the same time") }
  return count
}

/// Makes many calls at the same time while a task sends heartbeats on the same threads.
///
/// If calls block the threads of their callers, each of these calls delays the heartbeat in turn.
private func longestPause(
  _ context: CheckContext, during callCount: Int,
  _ call: @escaping @Sendable (_ index: Int) async throws -> Void
) async throws -> (pause: Duration, allowed: Duration) {
  let monitor = HeartbeatMonitor()
  let watch = DedicatedThread()
  defer { watch.stop() }
  async let beating: Void = keepBeating(monitor)
  async let observation = watch.run { monitor.observe() }
  let result: Result<Void, any Error>
  let end = ContinuousClock.now.advanced(by: duration)
  do {
    try await gather(0..<callCount) { index in
      // Once the result is clear there is no need to go on.
      guard !monitor.isDone, ContinuousClock.now < end else { return }
      try await call(index)
      context.noteProgress()
    }
    result = .success(())
  } catch {
    result = .failure(error)
  }
  monitor.stop()
  await beating
  let observed = try await observation
  try result.get()
  return observed
}

/// Sends heartbeats on the threads on which the calls are made, and also on the cooperative pool, for the engine's own
/// tasks.
@concurrent private func keepBeating(_ monitor: HeartbeatMonitor) async {
  while !monitor.isDone {
    monitor.beat()
    await Task.detached {}.value
    // Pauses, because the monitor reads the count only every few milliseconds, and the calls need the processor too.
    // Continues after cancellation.
    if (try? await Task.sleep(for: .microseconds(500))) == nil { await Task.yield() }
  }
}

/// A heartbeat of a task, and its monitor.
private final class HeartbeatMonitor: Sendable {
  private let clock = ContinuousClock()
  private let done = Flag()
  private let beats = Atomic(0)

  var isDone: Bool { done.isSet }

  func stop() { done.set() }

  func beat() { beats.wrappingAdd(1, ordering: .relaxed) }

  /// Watches from a thread outside the pool until the end. Returns the longest pause and the longest one that is
  /// allowed.
  ///
  /// A pause does not include time in which the process computed or waited for a processor: a thread that computes does
  /// not wait for a disk. How late this thread wakes up shows how busy the machine is.
  func observe() -> (pause: Duration, allowed: Duration) {
    var (pause, lateness) = (Duration.zero, Duration.zero)
    var (lastCount, standstill) = (-1, Duration.zero)
    var (last, lastProcessorTime) = (clock.now, System.processorTime)
    var allowed: Duration { timeout + lateness * 20 }
    while !isDone {
      let before = clock.now
      System.pauseThread(milliseconds: 5)
      let now = clock.now
      lateness = max(lateness, now - before - .milliseconds(5))
      let (count, processorTime) = (beats.load(ordering: .relaxed), System.processorTime)
      if count != lastCount {
        (lastCount, standstill) = (count, .zero)
      } else if standstill < timeout / 20 || !System.hasAnotherThread(in: "R") {
        // Read only when the heartbeat has stopped, since it is slow.
        standstill += now - last - (processorTime - lastProcessorTime)
        pause = max(pause, standstill)
      }
      (last, lastProcessorTime) = (now, processorTime)
      if pause > allowed { stop() }
    }
    return (pause, allowed)
  }
}

// MARK: - Giving way

/// Has a task for each thread read everything in a loop, without yielding, and writes meanwhile. Fails if, three times
/// in a row, some reader used this much processor time before the write returned, and several times as much as the write
/// takes without readers: a write that has its turn may still have to wait for a slow disk.
private func checkGivingWay(
  in engine: EngineUnderTest, during name: String, within turn: Duration,
  _ read: @escaping @Sendable (EngineUnderTest) async throws -> Void
) async throws {
  var alone = Duration.seconds(1_000)
  for _ in 0..<3 {
    alone = min(alone, try await ContinuousClock().measure { try await writeMeanwhile(in: engine) })
  }
  let turn = turn + alone * 4
  for _ in 0..<3 where try await isWriteDone(in: engine, within: turn, whileAllCall: read) { return }
  throw Violation(
    "a write had not returned when each of \(CheckExecutor.usualCount) tasks had called \(name) in a loop "
      + "for \(turn)"
  )
}

/// The time limit for a reader that hardly computes, for example because its engine reads on a thread of its own.
private let longestReading = Duration.seconds(20)

private func writeMeanwhile(in engine: EngineUnderTest) async throws {
  try await engine.write(data("v"), key: key("written meanwhile"))
}

private func isWriteDone(
  in engine: EngineUnderTest, within turn: Duration,
  whileAllCall read: @escaping @Sendable (EngineUnderTest) async throws -> Void
) async throws -> Bool {
  let (isDone, isLate) = (Flag(), Flag())
  let threads = CheckExecutor()
  defer { threads.stop() }
  return try await Task(executorPreference: threads) { @concurrent in
    try await withThrowingTaskGroup { group in
      for _ in 0..<CheckExecutor.usualCount {
        group.addTask { @concurrent in
          let start = ContinuousClock.now
          // The threads are new, so on a busy machine the processor time of other work is not counted.
          while !isDone.isSet, System.threadProcessorTime < turn,
            ContinuousClock.now - start < max(longestReading, turn)
          { try await read(engine) }
          isLate.set()
        }
      }
      group.addTask { @concurrent in
        // Queued behind the readers, so that all of them have started.
        try await writeMeanwhile(in: engine)
        if !isLate.isSet { isDone.set() }
      }
      try await group.waitForAll()
    }
    return isDone.isSet
  }.value
}
