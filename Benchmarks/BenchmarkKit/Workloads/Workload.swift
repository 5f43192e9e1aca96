import StockroomCore

/// Something that an engine, or a store in front of it, does and that is worth timing.
///
/// The built-in ones are in ``all``. A workload of one's own is a value like them:
///
/// ```swift
/// let exists = Workload("exists", "Asks for every key whether it is there.") { run in
///   try await run.measure(operations: run.records.count) { laps in
///     for (key, _) in run.records.all {
///       _ = try await run.engine.keyExists(key)
///       laps.lap()
///     }
///   }
/// }
/// ```
public struct Workload: Sendable {
  /// What an engine holds.
  public enum Contents: Sendable {
    /// No entry.
    case nothing
    /// Just the records of the workload.
    case records
    /// Neither of these.
    case somethingElse
  }

  /// Prepares what the runner does not, calls ``WorkloadRun/measure(operations:_:)`` once, and verifies all that the
  /// engine answered.
  public typealias Body = @Sendable (WorkloadRun) async throws -> Void

  /// How the workload is selected and reported.
  public let name: String
  /// What it does and what counts as one operation, in a sentence or two.
  public let summary: String
  /// What the engine holds before. The runner sees to it, without timing that.
  public let startsFrom: Contents
  /// What the engine holds afterwards.
  public let leaves: Contents
  /// How many records there are, 1 to 10,000,000; nil for as many as the configuration says.
  public let entries: Int?
  /// The mean size of a value in bytes, from 0 to 64 MiB; nil for what the configuration says.
  public let valueSize: Int?
  /// What an engine must promise to take part.
  public let needs: EngineCapabilities
  /// What is done.
  public let body: Body

  /// A workload.
  public init(
    _ name: String, _ summary: String, startsFrom: Contents = .records, leaves: Contents = .records,
    entries: Int? = nil, valueSize: Int? = nil, needs: EngineCapabilities = [], body: @escaping Body
  ) {
    self.name = name
    self.summary = summary
    self.startsFrom = startsFrom
    self.leaves = leaves
    self.entries = entries
    self.valueSize = valueSize
    self.needs = needs
    self.body = body
  }

  /// The same under another name, with records of another number or size.
  func with(name: String, entries: Int? = nil, valueSize: Int? = nil) -> Workload {
    Workload(
      name, summary, startsFrom: startsFrom, leaves: leaves, entries: entries ?? self.entries,
      valueSize: valueSize ?? self.valueSize, needs: needs, body: body)
  }
}
