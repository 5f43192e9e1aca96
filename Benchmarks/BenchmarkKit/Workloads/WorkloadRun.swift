#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One measurement of a workload on a subject, passed to the workload's body.
public final class WorkloadRun: Sendable {
  /// The records of the workload.
  public let records: BenchmarkRecords
  /// The seed of the workload's random choices, the same for all subjects.
  public let seed: UInt64
  /// The number of calls that are timed together; more than 1 if a single call is too short to be timed.
  let callsPerSample: Int

  private let subject: OpenSubject
  private let outcome = MutexProtected<Measurement?>(nil)

  init(_ subject: OpenSubject, records: BenchmarkRecords, seed: UInt64, callsPerSample: Int) {
    self.subject = subject
    self.records = records
    self.seed = seed
    self.callsPerSample = callsPerSample
  }

  /// The engine.
  public var engine: any StorageEngine { subject.engine }

  /// The result of ``measure(operations:_:)``.
  var measurement: Measurement? { outcome.withLock { $0 } }

  /// Closes the engine. Reopen it with ``open()``.
  public func close() async throws { try await subject.close() }

  /// Reopens the engine.
  public func open() async throws { try await subject.open() }

  /// Opens the engine in another process.
  func startWorker() async throws -> BenchmarkWorkerProcess { try await subject.startWorker() }

  /// Runs `work` and measures its time, the processor time, the memory, the latency of each call, and the
  /// longest stall of the cooperative pool. The time, the processor time and the latencies do not include what `work`
  /// excludes with ``LatencyRecorder/exclude(_:)``. The processor time includes that of the task that measures stalls,
  /// which wakes up every millisecond: a few microseconds for each millisecond of an operation.
  ///
  /// - Parameters:
  ///   - operations: The number of operations in the work, by which its time is divided.
  ///   - work: Runs on the caller's actor. Calls ``LatencyRecorder/record()`` after each call of the engine.
  public func measure<Result>(
    operations: Int, _ work: (inout LatencyRecorder) async throws -> Result
  ) async throws -> Result {
    var latencies = latencyRecorder()
    var usage = ResourceUsage()
    let heartbeat = await Heartbeat()
    usage.startProcessorTime()
    let start = ContinuousClock.now
    latencies.start()
    let result: Result
    do {
      result = try await work(&latencies)
    } catch {
      _ = await heartbeat.stop()
      throw error
    }
    let seconds = (ContinuousClock.now - start - latencies.excluded).inSeconds
    let processorSeconds = usage.processorSeconds - latencies.excludedProcessorSeconds
    let histogram = latencies.finished()
    let stall = await heartbeat.stop()
    let merged = latenciesOfTasks.withLock { $0.merging(histogram) }
    outcome.withLock {
      $0 = Measurement(
        operations: operations, seconds: max(1e-9, seconds), processorSeconds: processorSeconds,
        peakMemory: usage.peakMemory, stall: stall, latencies: merged)
    }
    return result
  }

  /// Measures one call for each element, made by this many concurrent tasks.
  ///
  /// - Parameters:
  ///   - call: One operation.
  ///   - verify: Checks a result of `call`, outside of the measured time.
  func measure<Element: Sendable, Value: Sendable>(
    _ elements: [Element], by tasks: Int,
    _ call: @escaping @Sendable (any StorageEngine, Element) async throws -> Value,
    verify: (Value, Element) throws -> Void = { _, _ in }
  ) async throws {
    let values = try await measure(operations: elements.count) { _ in
      let engine = engine
      return try await withThrowingTaskGroup { group in
        for task in 0..<tasks {
          group.addTask { [self] in
            var latencies = latencyRecorder()
            var values: [Value] = []
            values.reserveCapacity(elements.count / tasks + 1)
            for index in stride(from: task, to: elements.count, by: tasks) {
              values.append(try await call(engine, elements[index]))
              latencies.record()
            }
            add(latencies)
            return (task, values)
          }
        }
        return try await group.reduce(into: []) { $0.append($1) }
      }
    }
    for (task, values) in values {
      for (value, index) in zip(values, stride(from: task, to: elements.count, by: tasks)) {
        try verify(value, elements[index])
      }
    }
  }

  private let latenciesOfTasks = MutexProtected(LatencyHistogram())

  /// A recorder for a task that the workload starts. Pass it to ``add(_:)`` when the task has ended. What it excludes
  /// is excluded from the latencies only.
  public func latencyRecorder() -> LatencyRecorder { LatencyRecorder(callsPerSample: callsPerSample) }

  /// Adds the latencies that a task has recorded.
  public func add(_ latencies: consuming LatencyRecorder) {
    let histogram = latencies.finished()
    latenciesOfTasks.withLock { $0 = $0.merging(histogram) }
  }
}
