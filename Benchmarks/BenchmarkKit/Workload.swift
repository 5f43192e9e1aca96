#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Something that an engine does and that is worth timing.
///
/// The built-in ones are in ``all``. A workload of one's own is a value like them:
///
/// ```swift
/// let exists = Workload(
///   "exists", "Asks for every key whether it is there.", startsFrom: .records, leaves: .records,
///   operations: { $0 }
/// ) { engine, records in
///   for (key, _) in records.all { _ = try await engine.keyExists(key) }
///   return {}
/// }
/// ```
public struct Workload: Sendable {
  /// What an engine holds.
  public enum Contents: Sendable {
    /// No entry.
    case nothing
    /// Just the records of the run.
    case records
    /// Neither of these.
    case somethingElse
  }

  /// Compares what a body has read with what it should have read. It is called after the clock has stopped.
  public typealias Verification = @Sendable () async throws -> Void
  /// What is timed. Returns how to verify it.
  public typealias Body = @Sendable (any StorageEngine, BenchmarkRecords) async throws -> Verification

  /// How the workload is selected and reported.
  public let name: String
  /// What it does and what counts as one operation, in a sentence or two.
  public let summary: String
  /// What the engine holds before. The runner sees to it, without timing that.
  public let startsFrom: Contents
  /// What the engine holds afterwards.
  public let leaves: Contents
  /// How many operations the body does, given the number of records.
  public let operations: @Sendable (_ entries: Int) -> Int
  /// What is timed.
  public let body: Body

  /// A workload.
  public init(
    _ name: String, _ summary: String, startsFrom: Contents, leaves: Contents,
    operations: @escaping @Sendable (_ entries: Int) -> Int, body: @escaping Body
  ) {
    self.name = name
    self.summary = summary
    self.startsFrom = startsFrom
    self.leaves = leaves
    self.operations = operations
    self.body = body
  }
}

extension Workload {
  /// Brings an engine that holds `contents` to where this workload starts.
  func prepare(_ engine: any StorageEngine, holding contents: Contents, records: BenchmarkRecords)
    async throws
  {
    guard contents != startsFrom else { return }
    if contents != .nothing { try await engine.removeAllData() }
    if startsFrom == .records { try await engine.write(records.all) }
  }
}
