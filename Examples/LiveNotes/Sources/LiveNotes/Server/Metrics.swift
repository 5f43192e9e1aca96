import CoreMetrics
import Foundation
import Synchronization

/// Stores what swift-metrics records, for `/metrics`, in the text format of Prometheus.
final class MetricsPage: MetricsFactory {
  private struct Series: Hashable {
    let name: String
    let labels: String
  }

  /// The value of one series.
  final class Value: CounterHandler, MeterHandler, RecorderHandler, TimerHandler {
    fileprivate struct State {
      var sum = 0.0
      var count = 0
    }

    fileprivate let state = Mutex(State())
    fileprivate let kind: Kind

    fileprivate init(_ kind: Kind) { self.kind = kind }

    func increment(by amount: Int64) { add(Double(amount)) }
    func increment(by amount: Double) { add(amount) }
    func decrement(by amount: Double) { add(-amount) }
    func reset() { state.withLock { $0 = State() } }
    func set(_ value: Int64) { state.withLock { $0.sum = Double(value) } }
    func set(_ value: Double) { state.withLock { $0.sum = value } }
    func record(_ value: Int64) { add(Double(value)) }
    func record(_ value: Double) { add(value) }
    func recordNanoseconds(_ duration: Int64) { add(Double(duration) / 1e9) }

    private func add(_ amount: Double) {
      state.withLock { state in
        state.sum += amount
        state.count += 1
      }
    }
  }

  fileprivate enum Kind { case counter, gauge, summary }

  private let values = Mutex<[Series: Value]>([:])

  private func value(_ label: String, _ dimensions: [(String, String)], _ kind: Kind) -> Value {
    let labels = dimensions.map { "\(Self.name($0.0))=\"\(Self.escaped($0.1))\"" }.joined(separator: ",")
    return values.withLock { values in
      let series = Series(name: Self.name(label), labels: labels)
      let value = values[series] ?? Value(kind)
      values[series] = value
      return value
    }
  }

  private static func name(_ label: String) -> String {
    String(label.map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "_" })
  }

  private static func escaped(_ value: String) -> String {
    value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
  }

  /// All series, as text.
  var text: String {
    let series = values.withLock { $0 }.sorted { ($0.key.name, $0.key.labels) < ($1.key.name, $1.key.labels) }
    var text = ""
    var lastName = ""
    for (series, value) in series {
      if series.name != lastName { text += "# TYPE \(series.name) \(value.kind)\n" }
      lastName = series.name
      let labels = series.labels.isEmpty ? "" : "{\(series.labels)}"
      let state = value.state.withLock { $0 }
      switch value.kind {
      case .counter, .gauge: text += "\(series.name)\(labels) \(state.sum)\n"
      case .summary:
        text += "\(series.name)_sum\(labels) \(state.sum)\n\(series.name)_count\(labels) \(state.count)\n"
      }
    }
    return text
  }

  func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    value(label, dimensions, .counter)
  }
  func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
    value(label, dimensions, .gauge)
  }
  func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
    value(label, dimensions, .summary)
  }
  func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    value(label, dimensions, .summary)
  }
  // Series are kept, since counters must not decrease.
  func destroyCounter(_ handler: any CounterHandler) {}
  func destroyMeter(_ handler: any MeterHandler) {}
  func destroyRecorder(_ handler: any RecorderHandler) {}
  func destroyTimer(_ handler: any TimerHandler) {}
}
