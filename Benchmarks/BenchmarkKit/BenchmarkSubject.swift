#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A storage engine to be measured.
///
/// ```swift
/// BenchmarkSubject("mine") { try MyEngine(directory: $0) }
/// ```
public struct BenchmarkSubject: Sendable {
  /// The name of the engine in the report.
  public let name: String
  /// The names of the workloads to run on it; nil for all.
  public let workloads: Set<String>?
  /// The program that opens the engine in another process. Without it, workloads that need another process
  /// are skipped.
  public let worker: BenchmarkWorker?
  /// Whether it stores entries outside its directory, such as on a server, and so perhaps on another disk.
  public let isElsewhere: Bool
  let makeEngine: @Sendable (_ directory: URL) async throws -> any StorageEngine

  /// Creates a subject.
  ///
  /// - Parameters:
  ///   - name: The name of the engine in the report, unique in a run.
  ///   - workloads: The names of the workloads to run on it; nil for all.
  ///   - worker: The program that opens the engine in another process. Without it, workloads that need
  ///     another process are skipped.
  ///   - isElsewhere: Whether it stores entries outside its directory, such as on a server, which the report then
  ///     states.
  ///   - makeEngine: Opens the engine in a directory, which the runner creates and removes. Called with an empty
  ///     directory in each repetition and in the warm-up, and again when a workload reopens the engine.
  public init(
    _ name: String, workloads: Set<String>? = nil, worker: BenchmarkWorker? = nil, isElsewhere: Bool = false,
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) {
    self.name = name
    self.workloads = workloads
    self.worker = worker
    self.isElsewhere = isElsewhere
    self.makeEngine = makeEngine
  }

  func runs(_ workload: Workload) -> Bool { workloads?.contains(workload.name) ?? true }
}
