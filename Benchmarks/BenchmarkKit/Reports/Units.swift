/// Formats numbers with about three digits and a unit.
enum Units {
  /// A time, such as `12.3 µs`.
  static func seconds(_ seconds: Double) -> String {
    switch seconds {
    case ..<1e-6: "\(digits(seconds * 1e9)) ns"
    case ..<1e-3: "\(digits(seconds * 1e6)) µs"
    case ..<1: "\(digits(seconds * 1e3)) ms"
    default: "\(digits(seconds)) s"
    }
  }

  /// A power of ten of a second, such as `10 µs`.
  static func power(_ seconds: Double) -> String {
    for (unit, size) in [("s", 1), ("ms", 1e-3), ("µs", 1e-6)] where seconds > size * 0.99 {
      return "\(Int((seconds / size).rounded())) \(unit)"
    }
    return seconds > 0.99e-9 ? "\(Int((seconds / 1e-9).rounded())) ns" : "0.1 ns"
  }

  /// A count, rounded down, such as `10k`.
  static func count(_ count: Double) -> String {
    count >= 1e6 ? "\(Int(count / 1e6))M" : count >= 1e3 ? "\(Int(count / 1e3))k" : "\(Int(count))"
  }

  /// Minutes and seconds, such as `1:05`.
  static func clock(_ duration: Duration) -> String {
    let seconds = Int(duration.inSeconds.rounded())
    let rest = seconds % 60
    return "\(seconds / 60):\(rest < 10 ? "0" : "")\(rest)"
  }

  /// A number of operations per second, such as `81.3k ops/s`.
  static func perSecond(_ operations: Double) -> String {
    switch operations {
    case ..<1e3: "\(digits(operations)) ops/s"
    case ..<1e6: "\(digits(operations / 1e3))k ops/s"
    default: "\(digits(operations / 1e6))M ops/s"
    }
  }

  /// A size, such as `1.00 KiB`.
  static func bytes(_ bytes: UInt64) -> String {
    var size = Double(bytes)
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
      if size < 1024 { return unit == "bytes" ? "\(bytes) \(unit)" : "\(digits(size)) \(unit)" }
      size /= 1024
    }
    return "\(digits(size)) TiB"
  }

  /// A fraction, such as `5%`.
  static func percent(_ fraction: Double) -> String {
    let percent = (fraction * 100).rounded()
    return percent.magnitude < 1e15 ? "\(Int(percent))%" : "\(percent)%"
  }

  /// Two decimals below 10, one below 100, and an integer from there on.
  static func digits(_ value: Double) -> String {
    guard value.isFinite, value.magnitude < 1e15 else { return "\(value)" }
    let decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0
    let scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1
    let scaled = Int((value * Double(scale)).rounded())
    guard decimals > 0 else { return "\(scaled)" }
    let fraction = "\(scaled % scale)"
    return "\(scaled / scale)." + String(repeating: "0", count: decimals - fraction.count) + fraction
  }
}
