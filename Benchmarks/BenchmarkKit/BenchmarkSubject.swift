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
  let makeEngine: @Sendable (_ directory: URL) async throws -> any StorageEngine

  /// An engine, and how to open it.
  ///
  /// - Parameters:
  ///   - name: What the report calls the engine. No two subjects of a run share a name.
  ///   - makeEngine: Opens the engine on an empty directory, which the runner has made and will remove. Called
  ///     once for each repetition and once for the warm-up.
  public init(
    _ name: String, makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) {
    self.name = name
    self.makeEngine = makeEngine
  }
}
