/// How fast something must be, compared with something else of the same run.
public struct Limit: Sendable, Hashable {
  /// What an engine does.
  public struct Side: Sendable, Hashable, Codable {
    /// The name of the subject.
    public let subject: String
    /// The name of the workload.
    public let workload: String

    /// A subject in a workload.
    public init(_ subject: String, _ workload: String) {
      self.subject = subject
      self.workload = workload
    }
  }

  /// What is held against the bound.
  public enum Quantity: String, Sendable, Codable {
    /// The time of an operation, divided by that of the other side.
    case time
    /// How many operations are done in a second, divided by those of the other side.
    case throughput
    /// The longest stall of the cooperative pool in milliseconds, without another side.
    case stall
  }

  /// What the quantity may be.
  public enum Bound: Sendable, Hashable {
    /// No more than this.
    case atMost(Double)
    /// No less than this.
    case atLeast(Double)

    /// Whether the value may be.
    public func admits(_ value: Double) -> Bool {
      switch self {
      case .atMost(let most): value <= most
      case .atLeast(let least): value >= least
      }
    }
  }

  /// How the limit is selected: what is limited, and behind a slash which of it.
  public let name: String
  /// What is limited.
  public let measured: Side
  /// What it is compared with; nil for a stall.
  public let reference: Side?
  /// What is compared.
  public let quantity: Quantity
  /// The limit itself.
  public let bound: Bound

  /// A limit.
  public init(name: String, measured: Side, reference: Side?, quantity: Quantity, bound: Bound) {
    self.name = name
    self.measured = measured
    self.reference = reference
    self.quantity = quantity
    self.bound = bound
  }

  /// A limit on the time of an operation, as a multiple of that of another one.
  static func time(_ name: String, of measured: Side, over reference: Side, atMost bound: Double) -> Limit {
    Limit(name: name, measured: measured, reference: reference, quantity: .time, bound: .atMost(bound))
  }

  /// A limit on the throughput, as a multiple of another one.
  static func throughput(
    _ name: String, of measured: Side, over reference: Side, atLeast bound: Double
  ) -> Limit {
    Limit(name: name, measured: measured, reference: reference, quantity: .throughput, bound: .atLeast(bound))
  }

  /// A limit on the longest stall.
  static func stall(_ name: String, of measured: Side, atMost milliseconds: Double) -> Limit {
    Limit(name: name, measured: measured, reference: nil, quantity: .stall, bound: .atMost(milliseconds))
  }

  /// Whether the limit has this name, or belongs to what has it.
  public func isSelected(by selector: String) -> Bool { name == selector || name.hasPrefix(selector + "/") }

  /// The sides that have to be measured.
  public var sides: [Side] { [measured] + (reference.map { [$0] } ?? []) }
}
