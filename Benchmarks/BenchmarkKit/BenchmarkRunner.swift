#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Measures the speed of engines: the same workloads with the same records on the same machine.
///
/// In every workload the subjects are measured one after another, in an order that rotates and reverses, so that a
/// temporary slowdown of the machine does not always affect the same subject. The first round is a warm-up and is not
/// counted. Results are compared with what was written; a wrong result ends the run.
///
/// ```swift
/// let runner = BenchmarkRunner(configuration: BenchmarkConfiguration(entries: 1_000))
/// let report = try await runner.run([
///   BenchmarkSubject("mine") { try MyEngine(directory: $0) },
///   BenchmarkSubject("memory") { _ in MemoryStorageEngine() },
/// ])
/// print(report.text)
/// ```
///
/// Measure with a release build: the figures of a debug build are not representative.
public struct BenchmarkRunner: Sendable {
  /// The configuration of the run.
  public let configuration: BenchmarkConfiguration

  /// Creates a runner. The configuration is validated by ``run(_:progress:)``.
  public init(configuration: BenchmarkConfiguration = BenchmarkConfiguration()) {
    self.configuration = configuration
  }

  /// Measures every workload on every subject.
  ///
  /// Does not run on the caller's actor. The engines are closed and their directories removed before this returns or
  /// throws.
  ///
  /// - Parameters:
  ///   - subjects: The engines, in the order in which the report lists them.
  ///   - progress: Called before each measurement.
  /// - Throws: ``BenchmarkError`` if the configuration is invalid, or if an engine fails or returns a wrong result;
  ///   `StorageError` if a directory cannot be created or, after a run without other errors, cannot be removed;
  ///   `CancellationError`.
  @concurrent
  public func run(
    _ subjects: [BenchmarkSubject], progress: @Sendable (BenchmarkProgress) -> Void = { _ in }
  ) async throws -> BenchmarkReport {
    try await run(subjects, progress: progress) { _ in }
  }

  /// Like ``run(_:progress:)``.
  ///
  /// - Parameter afterRepetition: Called after each repetition but the last, with a function that returns the
  ///   report of all repetitions so far, in O(repetitions).
  @concurrent
  package func run(
    _ subjects: [BenchmarkSubject], progress: @Sendable (BenchmarkProgress) -> Void,
    afterRepetition: @Sendable (_ report: @escaping @Sendable () -> BenchmarkReport) -> Void
  ) async throws -> BenchmarkReport {
    try validate(subjects)
    let scratch = try ScratchDirectory(in: configuration.directory, named: "stockroom-bench")
    let (samples, volatile): (Samples, [String])
    do {
      (samples, volatile) = try await measure(subjects, in: scratch, progress: progress) {
        samples, volatile, repetitions in
        afterRepetition { report(samples, of: subjects, volatile, repetitions: repetitions) }
      }
    } catch {
      do {
        try scratch.remove()
      } catch let leftover {
        throw BenchmarkError("What was written until then is still there (\(leftover))", underlying: error)
      }
      throw error
    }
    try scratch.remove()
    return report(samples, of: subjects, volatile, repetitions: configuration.repetitions)
  }

  private func report(
    _ samples: Samples, of subjects: [BenchmarkSubject], _ volatile: [String], repetitions: Int
  ) -> BenchmarkReport {
    var configuration = configuration
    configuration.repetitions = repetitions
    return BenchmarkReport(
      configuration, subjects: subjects.map(\.name), elsewhere: subjects.filter(\.isElsewhere).map(\.name),
      volatile: volatile
    ) { subject, workload in
      samples[subject]?[workload] ?? []
    }
  }

  private func validate(_ subjects: [BenchmarkSubject]) throws {
    try configuration.validate()
    guard !subjects.isEmpty else { throw BenchmarkError("No engine is selected.") }
    if let name = subjects.map(\.name).firstRepeated {
      throw BenchmarkError("Two engines have the name \(name).")
    }
  }

  /// The measurements by name of subject and name of workload, one for each repetition.
  private typealias Samples = [String: [String: [Measurement]]]

  /// The samples, and the subjects that are not persistent.
  private func measure(
    _ subjects: [BenchmarkSubject], in scratch: ScratchDirectory,
    progress: @Sendable (BenchmarkProgress) -> Void,
    afterRepetition: (_ samples: Samples, _ volatile: [String], _ repetitions: Int) -> Void
  ) async throws -> (Samples, volatile: [String]) {
    let workloads = configuration.workloads
    var recordSets: [RecordSet: BenchmarkRecords] = [:]
    for set in workloads.map(configuration.recordSet) where recordSets[set] == nil {
      recordSets[set] = BenchmarkRecords(set)
    }
    let start = ContinuousClock.now
    let total =
      (configuration.repetitions + 1)
      * workloads.reduce(0) { sum, workload in sum + subjects.count { $0.runs(workload) } }
    var done = 0
    var samples: Samples = [:]
    var warmUp: Samples = [:]
    var volatile: [String] = []

    for repetition in 0...configuration.repetitions {
      try await withOpenSubjects(subjects, in: scratch) { openSubjects in
        volatile = openSubjects.filter { !$0.engine.capabilities.contains(.persistent) }.map(\.name)
        for (index, workload) in workloads.enumerated() {
          guard let records = recordSets[configuration.recordSet(of: workload)] else { continue }
          let participants = openSubjects.filter { $0.subject.runs(workload) }
          for subject in participants.rotated(
            by: repetition + index, reversed: !repetition.isMultiple(of: 2))
          {
            try Task.checkCancellation()
            progress(
              BenchmarkProgress(
                subject: subject.name, workload: workload.name, repetition: repetition,
                repetitions: configuration.repetitions, fraction: Double(done) / Double(total),
                elapsed: ContinuousClock.now - start))
            let earlier = warmUp[subject.name]?[workload.name]?.first
            let measurement = try await subject.measure(
              workload, records: records, callsPerSample: earlier?.callsPerSample ?? 1)
            done += 1
            guard let measurement else { continue }
            if repetition > 0 {
              samples[subject.name, default: [:]][workload.name, default: []].append(measurement)
            } else {
              warmUp[subject.name, default: [:]][workload.name] = [measurement]
            }
          }
        }
      }
      if (1..<configuration.repetitions).contains(repetition) {
        afterRepetition(samples, volatile, repetition)
      }
    }
    return (samples, volatile)
  }

  /// Opens every subject in a new directory. Closes all of them and removes the directories when `body` returns or
  /// throws.
  private func withOpenSubjects(
    _ subjects: [BenchmarkSubject], in scratch: ScratchDirectory,
    body: ([OpenSubject]) async throws -> Void
  ) async throws {
    var openSubjects: [OpenSubject] = []
    // Later errors may be consequences of the first one.
    var failure: (any Error)?
    do {
      for subject in subjects { openSubjects.append(try await OpenSubject(subject, in: scratch)) }
      try await body(openSubjects)
    } catch {
      failure = error
    }
    for subject in openSubjects {
      do { try await subject.closeAndRemove() } catch { failure = failure ?? error }
    }
    if let failure { throw failure }
  }
}

extension Array {
  /// The elements from the one at `offset` on, cyclically, in ascending or descending order.
  func rotated(by offset: Int, reversed: Bool) -> [Element] {
    indices.map { self[(offset + (reversed ? count - $0 : $0)) % count] }
  }
}

extension Measurement {
  /// The number of calls to time together, about a microsecond, so that reading the clock does not distort the result.
  fileprivate var callsPerSample: Int {
    guard let median = latencies.quantile(0.5), median < 1_000 else { return 1 }
    return Int((1_000 / max(1, median)).rounded(.up))
  }
}
