/// A bound on the speed of an engine relative to another measurement of the same run, or on its longest stall.
public struct Limit: Sendable, Hashable {
  /// A measurement: a subject in a workload.
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

  /// The quantity that is compared with the bound.
  public enum Quantity: String, Sendable, Codable {
    /// The time of an operation, divided by that of the other side.
    case time
    /// The operations per second, divided by those of the other side.
    case throughput
    /// The longest stall of the cooperative pool in milliseconds, without another side.
    case stall
  }

  /// The range of a quantity.
  public enum Bound: Sendable, Hashable {
    /// No more than this.
    case atMost(Double)
    /// No less than this.
    case atLeast(Double)

    /// Whether the value is within the bound.
    public func admits(_ value: Double) -> Bool {
      switch self {
      case .atMost(let most): value <= most
      case .atLeast(let least): value >= least
      }
    }
  }

  /// The name by which the limit is selected: a group, a slash, and a name within the group.
  public let name: String
  /// The measurement that is limited.
  public let measured: Side
  /// The measurement that it is compared with; nil for a stall.
  public let reference: Side?
  /// The quantity that is compared.
  public let quantity: Quantity
  /// The bound of the quantity.
  public let bound: Bound

  /// Creates a limit.
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

  /// Whether the limit has this name, or is in the group of this name.
  public func isSelected(by selector: String) -> Bool { name == selector || name.hasPrefix(selector + "/") }

  /// The sides that have to be measured.
  public var sides: [Side] { [measured] + (reference.map { [$0] } ?? []) }
}
