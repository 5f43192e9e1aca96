#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A storage engine that takes part in a comparison.
///
/// ```swift
/// BenchmarkSubject("mine") { try MyEngine(directory: $0) }
/// ```
public struct BenchmarkSubject: Sendable {
  /// What the report calls the engine.
  public let name: String
  /// The names of the workloads that it takes part in; nil for all that there are.
  public let workloads: Set<String>?
  let makeEngine: @Sendable (_ directory: URL) async throws -> any StorageEngine

  /// An engine, and how to open it.
  ///
  /// - Parameters:
  ///   - name: What the report calls the engine. No two subjects of a run share a name.
  ///   - workloads: The names of the workloads that it takes part in; nil for all that there are.
  ///   - makeEngine: Opens the engine on an empty directory, which the runner has made and will remove. Called
  ///     once for each repetition and once for the warm-up.
  public init(
    _ name: String, workloads: Set<String>? = nil,
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) {
    self.name = name
    self.workloads = workloads
    self.makeEngine = makeEngine
  }

  func takesPart(in workload: Workload) -> Bool { workloads?.contains(workload.name) ?? true }
}
