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
  /// The names of the subjects, in the order in which they were given.
  public let subjects: [String]
  /// The workloads, in the order in which they ran.
  public let workloads: [WorkloadDescription]
  /// One result for each workload and subject, in their order.
  public let results: [BenchmarkResult]

  init(
    _ configuration: BenchmarkConfiguration, subjects: [String],
    samples: (_ subject: String, _ workload: String) -> [Double]
  ) {
    date = Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down))
    machine = .current
    entries = configuration.entries
    valueSize = configuration.valueSize
    repetitions = configuration.repetitions
    seed = configuration.seed
    durability = configuration.durability
    self.subjects = subjects
    workloads = configuration.workloads.map {
      WorkloadDescription(
        name: $0.name, summary: $0.summary, operations: $0.operations(configuration.entries))
    }
    results = workloads.flatMap { workload in
      subjects.compactMap { subject in
        BenchmarkResult(
          subject: subject, workload: workload.name, operations: workload.operations,
          samples: samples(subject, workload.name))
      }
    }
  }

  /// The result of a subject in a workload, if there is one. Costs time in proportion to the number of results.
  public func result(of subject: String, in workload: String) -> BenchmarkResult? {
    results.first { $0.subject == subject && $0.workload == workload }
  }

  /// How a subject did in a workload compared with the others; nil if it has no result there.
  public func standing(of subject: String, in workload: String) -> Standing? {
    let rivals = results.filter { $0.workload == workload }
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
  /// How many operations each sample is made of.
  public let operations: Int
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

  init?(subject: String, workload: String, operations: Int, samples: [Double]) {
    guard let seconds = Statistics(samples) else { return nil }
    self.subject = subject
    self.workload = workload
    self.operations = operations
    self.samples = samples
    self.seconds = seconds
  }

  /// The median time of one operation in seconds.
  public var secondsPerOperation: Double { seconds.median / Double(max(1, operations)) }

  /// How many operations the subject does in a second, at the median.
  public var operationsPerSecond: Double { 1 / secondsPerOperation }
}
