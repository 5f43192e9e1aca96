#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The results of a ``BenchmarkRunner`` with the conditions of the run.
///
/// Print ``text`` or ``markdown``, or store ``json()``, which ``init(json:)`` decodes.
public struct BenchmarkReport: Sendable, Hashable, Codable {
  /// The end of the run, to the second.
  public let date: Date
  /// The machine that it ran on.
  public let machine: MachineDescription
  /// The number of records.
  public let entries: Int
  /// The mean size of their values in bytes.
  public let valueSize: Int
  /// The number of samples of each measurement.
  public let repetitions: Int
  /// The seed of the records.
  public let seed: UInt64
  /// The durability of an acknowledged write, as configured.
  public let durability: String?
  /// The type of the file system of the engines' directories, such as `ext4`; nil where it is not known.
  public let fileSystem: String?
  /// The subjects that stored entries elsewhere, such as on a server, and so perhaps on another disk; nil if
  /// there were none.
  public let elsewhere: [String]?
  /// The subjects without the capability `persistent`; nil if there were none. If others were measured too, these are
  /// not ranked.
  public let volatile: [String]?
  /// The libraries that the engines use, with versions, as configured.
  public let software: [String]?
  /// The names of the subjects, in the order of the run.
  public let subjects: [String]
  /// The workloads, in the order in which they ran.
  public let workloads: [WorkloadDescription]
  /// One result for each workload and each subject that was measured in it, in their order.
  public let results: [BenchmarkResult]

  init(
    _ configuration: BenchmarkConfiguration, subjects: [String], elsewhere: [String] = [],
    volatile: [String] = [],
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
    self.elsewhere = elsewhere.isEmpty ? nil : elsewhere
    self.volatile = volatile.isEmpty ? nil : volatile
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

  /// The type of the file system, and the subjects that stored entries elsewhere.
  var fileSystemText: String? {
    guard let elsewhere else { return fileSystem }
    return "\(fileSystem ?? "an unknown file system"), \(elsewhere.joined(separator: " and ")) elsewhere"
  }

  /// The subjects that are shown, but not compared with the others: an engine that writes nothing to a disk is faster
  /// than any that does.
  var unrankedSubjects: Set<String> {
    let volatile = Set(volatile ?? [])
    return volatile.isSuperset(of: subjects) ? [] : volatile
  }

  /// The subjects that are compared with each other.
  ///
  /// - Parameter unranked: Subjects to leave out in addition to ``unrankedSubjects``.
  func ranked(without unranked: Set<String> = []) -> [String] {
    subjects.filter { !unranked.contains($0) && !unrankedSubjects.contains($0) }
  }

  /// The result of a subject in a workload, if there is one. O(results).
  public func result(of subject: String, in workload: String) -> BenchmarkResult? {
    results.first { $0.subject == subject && $0.workload == workload }
  }

  /// How a subject compares with the fastest of all subjects in a workload, including unranked ones; nil if it was
  /// not measured.
  public func standing(of subject: String, in workload: String) -> Standing? {
    standing(of: subject, in: workload, among: subjects)
  }

  func standing(of subject: String, in workload: String, among ranked: [String]) -> Standing? {
    let rivals = results.filter { $0.workload == workload && ranked.contains($0.subject) }
    guard let result = rivals.first(where: { $0.subject == subject }),
      let fastest = rivals.min(by: { $0.seconds.median < $1.seconds.median })
    else { return nil }
    if result == fastest { return .fastest }
    return result.seconds.overlaps(fastest.seconds) ? .tied : .slower
  }

  /// A comparison with the fastest result of the workload.
  public enum Standing: Sendable {
    /// Has the least median.
    case fastest
    /// Its samples overlap with those of the fastest: the difference may be chance.
    case tied
    /// Each of its samples is greater than all samples of the fastest.
    case slower
  }
}

/// A workload of a report.
public struct WorkloadDescription: Sendable, Hashable, Codable {
  /// The name of the workload.
  public let name: String
  /// What it does.
  public let summary: String
  /// The number of records.
  public let entries: Int
  /// The mean size of their values in bytes.
  public let valueSize: Int
}

/// The result of one subject in one workload.
public struct BenchmarkResult: Sendable, Hashable, Codable {
  /// The name of the subject.
  public let subject: String
  /// The name of the workload.
  public let workload: String
  /// The number of operations in each sample.
  public let operations: Int
  /// The time of all operations together in seconds, for each repetition.
  public let samples: [Double]
  /// The statistics of the samples, in seconds.
  public let seconds: Statistics
  /// The latencies of the calls in all repetitions; nil if the workload recorded none.
  public let latency: Latency?
  /// The median processor time of one operation in seconds. It includes that of the task that measures
  /// stalls, which wakes up every millisecond.
  public let processorSecondsPerOperation: Double
  /// The median growth of the process's memory at its peak, in bytes; nil where the system does not report it.
  public let peakMemory: UInt64?
  /// The median of the longest delays of a task that is due every millisecond, in seconds (rule C5); nil if the work
  /// took less than a millisecond.
  public let stall: Double?
  /// The median size of the engine's files afterwards, in bytes.
  public let bytesOnDisk: UInt64
  /// The size of the files divided by that of the keys and values; nil if there are no files, or if the workload leaves
  /// other contents than the records.
  public let bytesOnDiskPerByte: Double?

  /// Percentiles of the time of one call, in seconds. Calls that take less than a microsecond are timed several at once,
  /// and each counts as their mean.
  public struct Latency: Sendable, Hashable, Codable {
    /// The median.
    public let p50: Double
    /// The 90th percentile.
    public let p90: Double
    /// The 99th percentile.
    public let p99: Double
    /// The 99.9th percentile.
    public let p999: Double
    /// The maximum.
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

  /// The median number of operations in a second.
  public var operationsPerSecond: Double { 1 / secondsPerOperation }
}
