import StockroomKitSupport

/// The significant differences between two reports.
///
/// Measurements vary, and between two runs of the same code more than within one of them. A difference is
/// significant if all samples of one report are less than all of the other, and if their minima, which are
/// the samples with the least noise, differ by more than ``threshold``, by more than twice the difference between the
/// two least samples of each report, and by far more than those of most other measurements. If the disk itself has
/// become slower or faster, workloads that wait for it must also differ in the same direction after a correction for
/// that.
public struct BenchmarkComparison: Sendable, Hashable, Codable {
  /// Differences below this are never significant: two runs of the same code may differ by as much.
  public static let threshold = 0.12

  /// A significant difference of a subject in a workload.
  public struct Change: Sendable, Hashable, Codable {
    /// The name of the subject.
    public let subject: String
    /// The name of the workload.
    public let workload: String
    /// The least time of an operation before, in seconds.
    public let before: Double
    /// The least time of an operation now, in seconds.
    public let after: Double

    /// The time now divided by the time before: 2 if it takes twice as long.
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

  /// The significant differences, the greatest slowdown first and the greatest speedup last.
  public let changes: [Change]
  /// The number of measurements that both reports have.
  public let compared: Int
  /// Measurements that only one report has, or whose workloads or numbers of operations differ: `subject, workload`.
  public let incomparable: [String]
  /// Differences between the two runs that may explain changes, such as another machine, in sentences.
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

  /// The changes to longer times.
  public var slower: [Change] { changes.filter(\.isSlower) }

  private static func caveats(_ before: BenchmarkReport, _ after: BenchmarkReport) -> [String] {
    var caveats: [String] = []
    func compare<Value: Equatable>(_ name: String, _ value: KeyPath<BenchmarkReport, Value>) {
      if before[keyPath: value] != after[keyPath: value] {
        caveats.append("\(name): \(before[keyPath: value]) before, \(after[keyPath: value]) now.")
      }
    }
    compare("Machine", \.machine.summary)
    compare("File system", \.fileSystemOrUnknown)
    compare("Durability", \.durabilityText)
    compare("Software", \.softwareText)
    compare("Seed", \.seed)
    if min(before.repetitions, after.repetitions) < 2 {
      caveats.append("Repetitions: one alone has no spread, so any change may be chance.")
    }
    return caveats
  }
}

extension BenchmarkReport {
  fileprivate func description(of workload: String) -> WorkloadDescription? {
    workloads.first { $0.name == workload }
  }

  fileprivate var durabilityText: String { durability ?? "unknown" }
  fileprivate var fileSystemOrUnknown: String { fileSystemText ?? "unknown" }
  fileprivate var softwareText: String { software?.joined(separator: ", ") ?? "unknown" }
}

extension BenchmarkComparison {
  /// The comparison as text for a terminal.
  public var text: String {
    var lines = caveats.map { "! " + $0 }
    if compared == 0 {
      lines.append("The reports have no measurement in common.")
    } else if changes.isEmpty {
      lines.append("No significant change in \(compared) measurements.")
    } else {
      lines.append("Significant changes in \(compared) measurements, by the least time of each:")
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
