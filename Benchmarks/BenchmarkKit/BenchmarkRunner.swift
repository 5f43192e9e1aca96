#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Measures how fast engines do the same things with the same records on the same machine.
///
/// The subjects take turns at every workload, beginning with another one each time and in changing directions, so that
/// what slows the machine down for a moment does not slow down just one of them. A first round warms up and is not
/// counted. All that is read is compared with what was written; a wrong answer ends the run.
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
/// Measure with a release build: the figures of a debug build say little.
public struct BenchmarkRunner: Sendable {
  /// How much is measured, how often, where.
  public let configuration: BenchmarkConfiguration

  /// A runner. The configuration is checked when it runs.
  public init(configuration: BenchmarkConfiguration = BenchmarkConfiguration()) {
    self.configuration = configuration
  }

  /// Measures every workload on every subject.
  ///
  /// Does not run on the caller's actor. Whatever happens, the engines are closed and their directories removed
  /// before this returns.
  ///
  /// - Parameters:
  ///   - subjects: The engines, in the order in which the report lists them.
  ///   - progress: Called before each measurement.
  /// - Throws: ``BenchmarkError`` if the configuration makes no sense or an engine fails or answers wrongly;
  ///   `StorageError` if there can be no directory for them; `CancellationError` if the task was cancelled.
  @concurrent
  public func run(
    _ subjects: [BenchmarkSubject], progress: @Sendable (BenchmarkProgress) -> Void = { _ in }
  ) async throws -> BenchmarkReport {
    try validate(subjects)
    let scratch = try ScratchDirectory(in: configuration.directory, named: "stockroom-bench")
    let samples: Samples
    do {
      samples = try await measure(subjects, in: scratch, progress: progress)
    } catch {
      // What went wrong first is what the caller wants to know.
      try? scratch.remove()
      throw error
    }
    try scratch.remove()
    return BenchmarkReport(configuration, subjects: subjects.map(\.name)) { subject, workload in
      samples[subject]?[workload] ?? []
    }
  }

  private func validate(_ subjects: [BenchmarkSubject]) throws {
    try configuration.validate()
    guard !subjects.isEmpty else { throw BenchmarkError("There is no engine to measure.") }
    if let name = subjects.map(\.name).firstRepeated {
      throw BenchmarkError("There are two engines with the name \(name).")
    }
  }

  /// What was measured of each workload on each subject, repetition by repetition.
  private typealias Samples = [String: [String: [Measurement]]]

  private func measure(
    _ subjects: [BenchmarkSubject], in scratch: ScratchDirectory,
    progress: @Sendable (BenchmarkProgress) -> Void
  ) async throws -> Samples {
    let workloads = configuration.workloads
    var recordSets: [RecordSet: BenchmarkRecords] = [:]
    for set in workloads.map(configuration.recordSet) where recordSets[set] == nil {
      recordSets[set] = BenchmarkRecords(set)
    }
    let start = ContinuousClock.now
    let total =
      (configuration.repetitions + 1)
      * workloads.reduce(0) { sum, workload in sum + subjects.count { $0.takesPart(in: workload) } }
    var done = 0
    var samples: Samples = [:]
    var warmUp: Samples = [:]

    for repetition in 0...configuration.repetitions {
      try await withContestants(subjects, in: scratch) { contestants in
        for (turn, workload) in workloads.enumerated() {
          guard let records = recordSets[configuration.recordSet(of: workload)] else { continue }
          let starters = contestants.filter { $0.subject.takesPart(in: workload) }
          for contestant in starters.takingTurns(repetition + turn, backwards: !repetition.isMultiple(of: 2))
          {
            try Task.checkCancellation()
            progress(
              BenchmarkProgress(
                subject: contestant.name, workload: workload.name, repetition: repetition,
                repetitions: configuration.repetitions, fraction: Double(done) / Double(total),
                elapsed: ContinuousClock.now - start))
            let earlier = warmUp[contestant.name]?[workload.name]?.first
            let measurement = try await contestant.measure(
              workload, records: records, callsPerLap: earlier?.callsPerLap ?? 1)
            done += 1
            guard let measurement else { continue }
            if repetition > 0 {
              samples[contestant.name, default: [:]][workload.name, default: []].append(measurement)
            } else {
              warmUp[contestant.name, default: [:]][workload.name] = [measurement]
            }
          }
        }
      }
    }
    return samples
  }

  /// Opens every subject on a fresh directory, and closes and removes them all once `body` is through, whatever
  /// happens.
  private func withContestants(
    _ subjects: [BenchmarkSubject], in scratch: ScratchDirectory,
    body: ([Contestant]) async throws -> Void
  ) async throws {
    var contestants: [Contestant] = []
    // The first error is the one that counts.
    var failure: (any Error)?
    do {
      for subject in subjects { contestants.append(try await Contestant(subject, in: scratch)) }
      try await body(contestants)
    } catch {
      failure = error
    }
    for contestant in contestants {
      do { try await contestant.leave() } catch { failure = failure ?? error }
    }
    if let failure { throw failure }
  }
}

extension Array {
  /// The elements, beginning with another one each turn. Backwards, each comes after another one as well.
  func takingTurns(_ turn: Int, backwards: Bool) -> [Element] {
    indices.map { self[(turn + (backwards ? count - $0 : $0)) % count] }
  }
}

extension Measurement {
  /// How many calls are worth timing together, so that taking the time takes no notable part of it.
  fileprivate var callsPerLap: Int {
    guard let usual = latencies.quantile(0.5), usual < 1_000 else { return 1 }
    return Int((1_000 / max(1, usual)).rounded(.up))
  }
}
