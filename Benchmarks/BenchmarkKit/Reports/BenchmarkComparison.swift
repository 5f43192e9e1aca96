import StockroomCore
import StockroomKitSupport

/// What has become faster or slower from one report to another.
///
/// Measurements vary, and two runs of the same code more than the samples within one of them. A change is one that
/// chance does not explain: all samples of one report lie on one side of all of the other's, and the least of them, which
/// were disturbed least, differ by more than ``threshold``, by more than the best samples of each report do, and by
/// far more than those of most other measurements.
public struct BenchmarkComparison: Sendable, Hashable, Codable {
  /// What is never called a change, as two runs of the same code may differ by so much.
  public static let threshold = 0.12

  /// A subject in a workload that took another time than before.
  public struct Change: Sendable, Hashable, Codable {
    /// The name of the subject.
    public let subject: String
    /// The name of the workload.
    public let workload: String
    /// The least time of an operation before, in seconds.
    public let before: Double
    /// The least time of an operation now, in seconds.
    public let after: Double

    /// The time now in units of the time before: 2 if it takes twice as long.
    public var ratio: Double { after / before }
    /// Whether it takes longer than before.
    public var isSlower: Bool { after > before }

    init(_ pair: ComparedResults) {
      let operations = Double(max(1, pair.after.operations))
      subject = pair.after.subject
      workload = pair.after.workload
      before = pair.before.seconds.minimum / operations
      after = pair.after.seconds.minimum / operations
    }
  }

  /// What has changed, the greatest slowdown first and the greatest gain last.
  public let changes: [Change]
  /// How many measurements could be compared.
  public let compared: Int
  /// What is in one of the reports only, or was measured with other records: `subject, workload`.
  public let incomparable: [String]
  /// Why the figures may differ for other reasons than the code: what differs between the two runs, in sentences.
  public let caveats: [String]

  /// Compares a report with an earlier one.
  public init(before: BenchmarkReport, after: BenchmarkReport) {
    var pairs: [ComparedResults] = []
    var incomparable: [String] = []
    for result in after.results {
      guard let earlier = before.result(of: result.subject, in: result.workload),
        earlier.operations == result.operations,
        before.description(of: result.workload) == after.description(of: result.workload)
      else {
        incomparable.append("\(result.subject), \(result.workload)")
        continue
      }
      pairs.append(ComparedResults(before: earlier, after: result))
    }
    for result in before.results where after.result(of: result.subject, in: result.workload) == nil {
      incomparable.append("\(result.subject), \(result.workload)")
    }
    let waiting = ComparedGroup(pairs.filter(\.waits), sharesDisk: true)
    let computing = ComparedGroup(pairs.filter { !$0.waits }, sharesDisk: false)
    changes = (waiting.changes + computing.changes).map(Change.init).sorted { $0.ratio > $1.ratio }
    compared = pairs.count
    self.incomparable = incomparable
    caveats = Self.caveats(before, after) + waiting.caveats
  }

  /// What has become slower.
  public var slower: [Change] { changes.filter(\.isSlower) }

  private static func caveats(_ before: BenchmarkReport, _ after: BenchmarkReport) -> [String] {
    var caveats: [String] = []
    func compare<Value: Equatable>(_ what: String, _ part: KeyPath<BenchmarkReport, Value>) {
      if before[keyPath: part] != after[keyPath: part] {
        caveats.append("\(what): \(before[keyPath: part]) before, \(after[keyPath: part]) now.")
      }
    }
    compare("Machine", \.machine.summary)
    compare("File system", \.fileSystemText)
    compare("Durability", \.durabilityText)
    compare("Software", \.softwareText)
    compare("Seed", \.seed)
    return caveats
  }
}

extension BenchmarkReport {
  fileprivate func description(of workload: String) -> WorkloadDescription? {
    workloads.first { $0.name == workload }
  }

  fileprivate var durabilityText: String { durability ?? "unknown" }
  fileprivate var fileSystemText: String { fileSystem ?? "unknown" }
  fileprivate var softwareText: String { software?.joined(separator: ", ") ?? "unknown" }
}

extension BenchmarkComparison {
  /// The comparison for a terminal: what became slower, what became faster, or that nothing did.
  public var text: String {
    var lines = caveats.map { "! " + $0 }
    if compared == 0 {
      lines.append("Nothing can be compared: the reports have no measurement in common.")
    } else if changes.isEmpty {
      lines.append("No change beyond the noise in \(compared) measurements.")
    } else {
      lines.append("Beyond the noise, of \(compared) measurements, each by its least time:")
      let rows = changes.map { change in
        [
          "\(change.isSlower ? "slower" : "faster")  \(change.subject), \(change.workload)",
          Units.seconds(change.before), "→", Units.seconds(change.after), "\(Units.digits(change.ratio))×",
        ]
      }
      lines.append(TextTable(header: ["change", "before", "", "now", "time"], rows: rows).text)
    }
    if !incomparable.isEmpty {
      lines.append("Not comparable: \(incomparable.joined(separator: "; ")).")
    }
    return lines.joined(separator: "\n") + "\n"
  }
}
