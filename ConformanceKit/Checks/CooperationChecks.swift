#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import Synchronization

// Waiting holds no thread of the cooperative pool: rule C5.

extension CheckDefinition {
  @CheckList static var cooperationChecks: [CheckDefinition] {
    Check(
      .c5, "cooperation.while-writing",
      "a task that has nothing to do with the engine keeps running while a thousand tasks for each processor write"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await checkHeartbeat { index in try await engine.write(data("v"), key: keys[index % 16]) }
    }
    Check(
      .c5, "cooperation.while-removing",
      "a task that has nothing to do with the engine keeps running while many remove"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await engine.write(entries(keys))
      try await checkHeartbeat { index in
        if index.isMultiple(of: 2) {
          try await engine.remove(key: keys[index % 16])
        } else {
          try await engine.write(entries([keys[index % 16], keys[index % 7]]))
        }
      }
    }
    Check(
      .c5, "cooperation.while-writing-batches",
      "a task that has nothing to do with the engine keeps running while many write batches"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await checkHeartbeat { index in
        if index.isMultiple(of: 2) {
          try await engine.apply([.remove(key: keys[index % 16]), .write(data("v"), key: keys[index % 5])])
        } else {
          try await engine.write(entries([keys[index % 16], keys[index % 7], keys[index % 3]]))
        }
      }
    }
    Check(
      .c5, "cooperation.while-reading",
      "a task that has nothing to do with the engine keeps running while many read, also all there is"
    ) { context in
      let engine = try await context.open()
      let keys = keys(16)
      try await engine.write(keys.map { ($0, noise(10_000)) })
      try await checkHeartbeat { index in
        switch index % 4 {
        case 0: _ = try await engine.readAllDataAndKeys()
        case 1: _ = try await engine.read(keys: keys)
        case 2: _ = try await engine.scan(.all, limit: nil)
        default: _ = try await engine.read(key: keys[index % 16])
        }
      }
    }
  }
}

/// How long the heartbeat may stand still, however loaded the machine is: far more than tasks that only compute
/// need to let one more task run.
private let patience = Duration.seconds(2)

/// Convicts the engine if the heartbeat stands still three times in a row: once, others in this process may have
/// held the threads of the pool.
private func checkHeartbeat(_ call: @escaping @Sendable (_ index: Int) async throws -> Void) async throws {
  for _ in 0..<2 {
    let (pause, allowed) = try await longestPause(during: call)
    if pause <= allowed { return }
  }
  let (pause, allowed) = try await longestPause(during: call)
  try expect(
    pause <= allowed,
    "a task that only wanted to run again and again could not for \(pause.inSeconds) s in which the process "
      + "computed nothing, while \(allowed.inSeconds) s is the most that the load of the machine explains")
}

/// Makes many calls at the same time, and meanwhile lets a task beat on the same threads.
///
/// If calls wait on the threads of their callers, each of these many calls holds up the heartbeat in turn.
private func longestPause(
  during call: @escaping @Sendable (_ index: Int) async throws -> Void
) async throws -> (pause: Duration, allowed: Duration) {
  let heart = Heart()
  let watch = OwnThread()
  defer { watch.stop() }
  async let beating: Void = keepBeating(heart)
  async let observation = watch.run { heart.observe() }
  let result: Result<Void, any Error>
  do {
    try await gather(0..<(1024 * ProcessInfo.processInfo.activeProcessorCount)) { index in
      // Once the verdict is clear there is no need to go on.
      if !heart.isDone { try await call(index) }
    }
    result = .success(())
  } catch {
    result = .failure(error)
  }
  heart.stop()
  await beating
  let observed = try await observation
  try result.get()
  return observed
}

/// Beats on the threads that the calls are made on, and for what the engine does in tasks of its own also on the
/// cooperative pool.
@concurrent private func keepBeating(_ heart: Heart) async {
  while !heart.isDone {
    heart.beat()
    await Task.yield()
    await Task.detached {}.value
  }
}

/// A task's sign of life, and who watches it.
private final class Heart: Sendable {
  private let clock = ContinuousClock()
  private let done = Flag()
  private let beats = Atomic(0)

  var isDone: Bool { done.isSet }

  func stop() { done.set() }

  func beat() { beats.wrappingAdd(1, ordering: .relaxed) }

  /// Watches from a thread outside the pool until the end. Gives the longest pause and the longest excusable one.
  ///
  /// Time in which the process computed is no part of a pause: a thread that computes does not wait for a disk.
  /// How late this thread wakes up tells how busy the machine is.
  func observe() -> (pause: Duration, allowed: Duration) {
    var (pause, lateness) = (Duration.zero, Duration.zero)
    var (lastCount, lastBeat, lastBeatTime) = (-1, clock.now, System.processorTime)
    var allowed: Duration { patience + lateness * 20 }
    while !isDone {
      let before = clock.now
      System.pauseThread(milliseconds: 5)
      let now = clock.now
      lateness = max(lateness, now - before - .milliseconds(5))
      let count = beats.load(ordering: .relaxed)
      if count != lastCount {
        (lastCount, lastBeat, lastBeatTime) = (count, now, System.processorTime)
      } else {
        pause = max(pause, now - lastBeat - (System.processorTime - lastBeatTime))
      }
      if pause > allowed { stop() }
    }
    return (pause, allowed)
  }
}
