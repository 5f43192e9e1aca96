import StockroomCore

/// A sequence of calls to an engine, or to a store in front of it, that is timed.
///
/// The built-in workloads are in ``all``. Create others with ``init(_:_:startsFrom:leaves:entries:valueSize:needs:body:)``:
///
/// ```swift
/// let exists = Workload("exists", "Checks the existence of every key.") { run in
///   try await run.measure(operations: run.records.count) { latencies in
///     for (key, _) in run.records.all {
///       _ = try await run.engine.keyExists(key)
///       latencies.record()
///     }
///   }
/// }
/// ```
public struct Workload: Sendable {
  /// The entries in an engine.
  public enum Contents: Sendable {
    /// No entry.
    case nothing
    /// The records of the workload and nothing else.
    case records
    /// Any other contents. If a workload starts from them, the runner prepares nothing.
    case somethingElse
  }

  /// Makes further preparations, calls ``WorkloadRun/measure(operations:_:)`` once, and verifies the results.
  public typealias Body = @Sendable (WorkloadRun) async throws -> Void

  /// The name by which the workload is selected and reported.
  public let name: String
  /// What the workload does and what counts as one operation, in a sentence or two.
  public let summary: String
  /// The contents of the engine before the workload. The runner prepares them, which is not timed.
  public let startsFrom: Contents
  /// The contents of the engine after the workload.
  public let leaves: Contents
  /// The number of records, 1 to 10,000,000; nil for that of the configuration.
  public let entries: Int?
  /// The mean size of a value in bytes, from 0 to 64 MiB; nil for that of the configuration.
  public let valueSize: Int?
  /// The capabilities that an engine must have to be measured.
  public let needs: EngineCapabilities
  /// Whether another process must open the engine too: subjects without a ``BenchmarkSubject/worker`` are not
  /// measured.
  let needsWorker: Bool
  /// The code of the workload.
  public let body: Body

  /// Creates a workload.
  public init(
    _ name: String, _ summary: String, startsFrom: Contents = .records, leaves: Contents = .records,
    entries: Int? = nil, valueSize: Int? = nil, needs: EngineCapabilities = [], body: @escaping Body
  ) {
    self.init(
      name, summary, startsFrom: startsFrom, leaves: leaves, entries: entries, valueSize: valueSize,
      needs: needs,
      needsWorker: false, body: body)
  }

  init(
    _ name: String, _ summary: String, startsFrom: Contents, leaves: Contents, entries: Int?, valueSize: Int?,
    needs: EngineCapabilities, needsWorker: Bool, body: @escaping Body
  ) {
    self.name = name
    self.summary = summary
    self.startsFrom = startsFrom
    self.leaves = leaves
    self.entries = entries
    self.valueSize = valueSize
    self.needs = needs
    self.needsWorker = needsWorker
    self.body = body
  }

  /// The same workload under another name, with another number or size of records.
  func with(name: String, entries: Int? = nil, valueSize: Int? = nil) -> Workload {
    Workload(
      name, summary, startsFrom: startsFrom, leaves: leaves, entries: entries ?? self.entries,
      valueSize: valueSize ?? self.valueSize, needs: needs,
      needsWorker: needsWorker, body: body)
  }
}
