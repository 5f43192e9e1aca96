#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One workload on one subject, once: what its body works with.
public final class WorkloadRun: Sendable {
  /// The records of the workload.
  public let records: BenchmarkRecords
  /// What the random choices of the workload are made from. The same for all subjects.
  public let seed: UInt64
  /// How many calls together are one lap, as a single one would be too short to be timed.
  let callsPerLap: Int

  private let contestant: Contestant
  private let outcome = MutexProtected<Measurement?>(nil)

  init(_ contestant: Contestant, records: BenchmarkRecords, seed: UInt64, callsPerLap: Int) {
    self.contestant = contestant
    self.records = records
    self.seed = seed
    self.callsPerLap = callsPerLap
  }

  /// The engine.
  public var engine: any StorageEngine { contestant.engine }

  /// What was measured, once it has been.
  var measurement: Measurement? { outcome.withLock { $0 } }

  /// Closes the engine, which ``open()`` opens again.
  public func close() async throws { try await contestant.close() }

  /// Opens the engine where it was.
  public func open() async throws { try await contestant.open() }

  /// Does the work and takes the time; also of the processors, of each lap, and of the longest stall of the cooperative
  /// pool. Whatever is before or after is not timed.
  ///
  /// - Parameters:
  ///   - operations: How many operations the work consists of: what its time is divided by.
  ///   - work: What is timed, where the caller is. It calls `lap()` after each call of the engine.
  public func measure<Result>(
    operations: Int, _ work: (inout Laps) async throws -> Result
  ) async throws -> Result {
    var laps = self.laps()
    let meters = Meters()
    let heartbeat = Heartbeat()
    let start = ContinuousClock.now
    laps.start()
    let result: Result
    do {
      result = try await work(&laps)
    } catch {
      _ = await heartbeat.stop()
      throw error
    }
    let seconds = (ContinuousClock.now - start).inSeconds
    let processorSeconds = meters.processorSeconds
    let stall = await heartbeat.stop()
    let latencies = lapsOfTasks.withLock { $0 }
    outcome.withLock {
      $0 = Measurement(
        operations: operations, seconds: max(1e-9, seconds), processorSeconds: processorSeconds,
        peakMemory: meters.peakMemory, stall: stall, latencies: latencies.merging(laps.histogram))
    }
    return result
  }

  private let lapsOfTasks = MutexProtected(LatencyHistogram())

  /// Laps for a task of the workload's own.
  public func laps() -> Laps { Laps(callsPerLap: callsPerLap) }

  /// Counts the laps of a task in.
  public func add(_ laps: Laps) { lapsOfTasks.withLock { $0 = $0.merging(laps.histogram) } }
}

/// The times of calls, one after the other.
public struct Laps: Sendable {
  private let callsPerLap: Int
  private var calls = 0
  private var last = ContinuousClock.now
  private(set) var histogram = LatencyHistogram()

  init(callsPerLap: Int) { self.callsPerLap = max(1, callsPerLap) }

  /// Begins anew: what has gone by is no part of the next call.
  public mutating func start() { last = .now }

  /// A call has ended. Costs about 30 ns, or next to nothing where several calls are one lap.
  public mutating func lap() {
    calls += 1
    guard calls == callsPerLap else { return }
    calls = 0
    let now = ContinuousClock.now
    histogram.add(nanoseconds: (now - last).inNanoseconds / UInt64(callsPerLap), count: UInt64(callsPerLap))
    last = now
  }
}

/// What was measured of one subject in one workload, once.
struct Measurement: Sendable {
  let operations: Int
  let seconds: Double
  /// How long the processors worked for the process.
  let processorSeconds: Double
  /// How much the memory of the process grew at most, in bytes, where the system tells.
  let peakMemory: UInt64?
  /// The longest time that a task which wanted to run each millisecond was kept from it, in seconds; nil if all was over
  /// sooner.
  let stall: Double?
  let latencies: LatencyHistogram
  /// What the engine's files took, in bytes, when it had been measured.
  var bytesOnDisk: UInt64 = 0
  /// What the keys and values in them have, in bytes, if that is known.
  var bytesStored: UInt64?
}

extension Duration {
  var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }

  /// At least 1.
  var inNanoseconds: UInt64 {
    let nanoseconds = components.seconds * 1_000_000_000 + components.attoseconds / 1_000_000_000
    return UInt64(max(1, nanoseconds))
  }
}
