#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What a ``BenchmarkRunner`` has measured, with all that is needed to judge it.
///
/// Print ``text`` or ``markdown``, or keep ``json()``, which can be decoded again.
public struct BenchmarkReport: Sendable, Hashable, Codable {
  /// When the run ended, to the second.
  public let date: Date
  /// Where it ran.
  public let machine: MachineDescription
  /// How many records there were.
  public let entries: Int
  /// The mean size of their values in bytes.
  public let valueSize: Int
  /// How many samples there are of each measurement.
  public let repetitions: Int
  /// What the records were made from.
  public let seed: UInt64
  /// What the engines promised of an acknowledged write, as the caller put it.
  public let durability: String?
  /// The kind of file system that the engines' directories were on, such as `ext4`; nil where that is not known.
  public let fileSystem: String?
  /// What the engines are built on, with versions, as the caller put it.
  public let software: [String]?
  /// The names of the subjects, in the order in which they were given.
  public let subjects: [String]
  /// The workloads, in the order in which they ran.
  public let workloads: [WorkloadDescription]
  /// One result for each workload and subject, in their order.
  public let results: [BenchmarkResult]

  init(
    _ configuration: BenchmarkConfiguration, subjects: [String],
    measurements: (_ subject: String, _ workload: String) -> [Measurement]
  ) {
    date = Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down))
    machine = .current
    entries = configuration.entries
    valueSize = configuration.valueSize
    repetitions = configuration.repetitions
    seed = configuration.seed
    durability = configuration.durability
    fileSystem = BenchmarkKit.fileSystem(of: configuration.directory)
    software = configuration.software
    self.subjects = subjects
    workloads = configuration.workloads.map { workload in
      let set = configuration.recordSet(of: workload)
      return WorkloadDescription(
        name: workload.name, summary: workload.summary, entries: set.entries, valueSize: set.valueSize)
    }
    results = configuration.workloads.flatMap { workload in
      subjects.compactMap { BenchmarkResult($0, workload, measurements($0, workload.name)) }
    }
  }

  /// The result of a subject in a workload, if there is one. Costs time in proportion to the number of results.
  public func result(of subject: String, in workload: String) -> BenchmarkResult? {
    results.first { $0.subject == subject && $0.workload == workload }
  }

  /// How a subject did in a workload compared with the others; nil if it has no result there.
  public func standing(of subject: String, in workload: String) -> Standing? {
    standing(of: subject, in: workload, among: subjects)
  }

  func standing(of subject: String, in workload: String, among racers: [String]) -> Standing? {
    let rivals = results.filter { $0.workload == workload && racers.contains($0.subject) }
    guard let result = rivals.first(where: { $0.subject == subject }),
      let fastest = rivals.min(by: { $0.seconds.median < $1.seconds.median })
    else { return nil }
    if result == fastest { return .fastest }
    return result.seconds.overlaps(fastest.seconds) ? .tied : .slower
  }

  /// How a result compares with the best one of its workload.
  public enum Standing: Sendable {
    /// Its median is the least.
    case fastest
    /// The difference to the fastest is within the spread of the samples: it may be chance.
    case tied
    /// Every sample took longer than every one of the fastest.
    case slower
  }
}

/// A workload as it was run.
public struct WorkloadDescription: Sendable, Hashable, Codable {
  /// How the workload is selected.
  public let name: String
  /// What it does.
  public let summary: String
  /// How many records there were.
  public let entries: Int
  /// The mean size of their values in bytes.
  public let valueSize: Int
}

/// What was measured of one subject in one workload.
public struct BenchmarkResult: Sendable, Hashable, Codable {
  /// The name of the subject.
  public let subject: String
  /// The name of the workload.
  public let workload: String
  /// How many operations each sample is made of.
  public let operations: Int
  /// How many seconds all the operations together took, repetition by repetition.
  public let samples: [Double]
  /// Median and spread of the samples, in seconds.
  public let seconds: Statistics
  /// How long the calls took, of all repetitions together; nil if the workload did not tell.
  public let latency: Latency?
  /// How many seconds the processors worked for an operation, at the median.
  public let processorSecondsPerOperation: Double
  /// How much the memory of the process grew at most, in bytes, at the median; nil where the system does not tell.
  public let peakMemory: UInt64?
  /// How long a task that wants to run each millisecond was kept from it at most, in seconds, at the median (rule C5);
  /// nil if the work never took that long.
  public let stall: Double?
  /// What the engine's files took afterwards, in bytes, at the median.
  public let bytesOnDisk: UInt64
  /// What the files took for each byte of keys and values in them; nil if there are no files, or if the workload left
  /// something else than the records.
  public let bytesOnDiskPerByte: Double?

  /// How long calls took, in seconds. Of calls that usually take less than a microsecond several are timed together, and
  /// each counts as the mean of them.
  public struct Latency: Sendable, Hashable, Codable {
    /// Half of the calls took no longer.
    public let p50: Double
    /// Nine of ten took no longer.
    public let p90: Double
    /// All but one of a hundred took no longer.
    public let p99: Double
    /// All but one of a thousand took no longer.
    public let p999: Double
    /// The longest of all, or of all means.
    public let maximum: Double

    init?(_ histogram: LatencyHistogram) {
      func quantile(_ part: Double) -> Double? { histogram.quantile(part).map { $0 * 1e-9 } }
      guard let p50 = quantile(0.5), let p90 = quantile(0.9), let p99 = quantile(0.99),
        let p999 = quantile(0.999)
      else { return nil }
      (self.p50, self.p90, self.p99, self.p999) = (p50, p90, p99, p999)
      maximum = Double(histogram.maximum) * 1e-9
    }
  }

  init?(_ subject: String, _ workload: Workload, _ measurements: [Measurement]) {
    guard let seconds = Statistics(measurements.map(\.seconds)), let first = measurements.first else {
      return nil
    }
    self.subject = subject
    self.workload = workload.name
    self.seconds = seconds
    operations = first.operations
    samples = measurements.map(\.seconds)
    latency = Latency(measurements.reduce(LatencyHistogram()) { $0.merging($1.latencies) })
    let processorSeconds = Statistics(measurements.map(\.processorSeconds))?.median ?? 0
    processorSecondsPerOperation = processorSeconds / Double(max(1, operations))
    peakMemory = Statistics(measurements.compactMap(\.peakMemory).map { Double($0) }).map {
      UInt64($0.median)
    }
    stall = Statistics(measurements.compactMap(\.stall))?.median
    bytesOnDisk = UInt64(Statistics(measurements.map { Double($0.bytesOnDisk) })?.median ?? 0)
    let stored = first.bytesStored ?? 0
    bytesOnDiskPerByte = stored > 0 && bytesOnDisk > 0 ? Double(bytesOnDisk) / Double(stored) : nil
  }

  /// The median time of one operation in seconds.
  public var secondsPerOperation: Double { seconds.median / Double(max(1, operations)) }

  /// How many operations the subject does in a second, at the median.
  public var operationsPerSecond: Double { 1 / secondsPerOperation }
}
