import Dispatch
import StockroomCore
import StockroomMemory
import Testing

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

@Suite("Fairness to other tasks")
struct FairnessTests {
  let engine = MemoryStorageEngine()

  @Test("A write on the main actor that waits for a long batch does not block the actor")
  @MainActor func mainActor() async throws {
    // The time of a batch depends on the machine, so longer ones are tried until a write has waited for one.
    var most = 0
    for count in [20_000, 200_000, 2_000_000] where most <= 2 {
      most = try await beatsDuringWrites(besideBatchOf: count)
    }
    #expect(most > 2)
  }

  /// The most runs of another task on the main actor during one write, while a batch is applied.
  @MainActor private func beatsDuringWrites(besideBatchOf count: Int) async throws -> Int {
    let operations = (0..<count).map { StorageOperation.write(Data(), key: CacheKey(verbatim: "\($0)")) }
    var isDone = false
    var beats = 0
    let batch = Task {
      try await engine.apply(operations)
      isDone = true
    }
    let heartbeat = Task {
      while !isDone {
        beats += 1
        await Task.yield()
      }
    }
    var most = 0
    while !isDone {
      let before = beats
      try await engine.write(Data(), key: "single")
      most = max(most, beats - before)
      // Until the batch has begun.
      await Task.yield()
    }
    try await batch.value
    await heartbeat.value
    #expect(try await engine.keyCount() == operations.count + 1)
    return most
  }

  @Test("A loop of single writes on an actor lets the actor's other tasks run")
  @MainActor func loop() async throws {
    var beats = 0
    let heartbeat = Task {
      while !Task.isCancelled {
        beats += 1
        await Task.yield()
      }
    }
    for number in 0..<1000 { try await engine.write(Data([UInt8(number & 255)]), key: "key") }
    heartbeat.cancel()
    #expect(beats > 5)
    await heartbeat.value
  }

  @Test("Bulk reads in a loop let another task on the same thread run")
  func bulkReads() async throws {
    let keys = (0..<100).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { ($0, Data()) })
    let reads: [@Sendable () async throws -> Void] = [
      { _ = try await engine.readAllData() }, { _ = try await engine.readAllDataAndKeys() },
      { _ = try await engine.readAllEntries() }, { _ = try await engine.allKeys() },
      { _ = try await engine.scan(.all, limit: nil) }, { _ = try await engine.read(keys: keys) },
      { _ = try await engine.readDataAndKeys(keys: keys) }, { _ = try await engine.keysExist(keys) },
    ]
    for (index, read) in reads.enumerated() {
      let other = Flag()
      let thread = SingleThread()
      let reader = Task(executorPreference: thread) {
        Task(executorPreference: thread) { other.set() }
        // A call yields as it starts, unless another one on the thread has done so in the same millisecond.
        for _ in 0..<100_000 where !other.isSet { try await read() }
        return other.isSet
      }
      #expect(try await reader.value, "read \(index)")
    }
  }

  @Test("A batch that is cancelled while it waits or is prepared changes nothing")
  func cancelled() async throws {
    let operations = (0..<20_000).map { StorageOperation.write(Data(), key: CacheKey(verbatim: "\($0)")) }
    let batches = (0..<3).map { _ in Task { try await engine.apply(operations) } }
    let single = Task { try await engine.write(Data(), key: "single") }
    for task in batches { task.cancel() }
    try await single.value
    var done = 0
    for task in batches {
      do {
        try await task.value
        done += 1
      } catch is CancellationError {}
    }
    #expect(try await engine.keyCount() == 1 + (done > 0 ? operations.count : 0))
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
  }
}

/// Runs tasks one at a time.
private final class SingleThread: TaskExecutor {
  private let queue = DispatchQueue(label: "single")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
