/// A few calls drawn on a time axis, a line for each task:
///
/// ```
/// task 3  |--write("a", 7)--|
/// task 5            |--read("a") → 6--|
/// ```
///
/// Only the order of beginnings and ends is to scale.
struct HistoryTimeline: CustomStringConvertible {
  let calls: [HistoryCall]
  /// The value of each key before the calls.
  let initial: [Int]

  var description: String {
    let columns = columns
    let tasks = Set(calls.map(\.task)).sorted()
    let width = tasks.map { "task \($0)".count }.max() ?? 0
    let lines = tasks.map { task in
      var line = "task \(task)"
      line += String(repeating: " ", count: width + 2 - line.count)
      let margin = line.count
      for call in calls.filter({ $0.task == task }).sorted(by: { $0.begin < $1.begin }) {
        guard let begin = columns[call.begin], let end = columns[call.end] else { continue }
        line += String(repeating: " ", count: max(0, margin + begin - line.count))
        line += bar(of: call, width: end - begin)
      }
      return line
    }
    return ([before] + lines).compactMap { $0 }.joined(separator: "\n")
  }

  /// The values of the keys before the calls.
  private var before: String? {
    let keys = Set(
      calls.flatMap { call in
        call.keys
          + call.changes.compactMap { change in
            switch change {
            case .write(let key, _), .remove(let key): key
            case .removeAll: nil
            }
          }
      })
    let values = keys.sorted().filter { initial[$0] != Cell.absent }.map {
      "\(HistoryCall.name(of: $0)) is \(initial[$0])"
    }
    return values.isEmpty ? nil : "Before: \(values.joined(separator: ", "))"
  }

  private func bar(of call: HistoryCall, width: Int) -> String {
    let label = label(of: call)
    let dashes = max(2, width - 1 - label.count)
    let before = dashes / 2
    return "|" + String(repeating: "-", count: before) + label
      + String(repeating: "-", count: dashes - before)
      + "|"
  }

  private func label(of call: HistoryCall) -> String {
    let label = call.description
    return label.count > 72 ? "\(label.prefix(71))…" : label
  }

  /// The column of each beginning and end: at least two apart, and far enough for the label between them.
  private var columns: [Int: Int] {
    var columns: [Int: Int] = [:]
    var next = 0
    let events = (calls.map { ($0.begin, nil as HistoryCall?) } + calls.map { ($0.end, $0) }).sorted {
      $0.0 < $1.0
    }
    for (time, ended) in events {
      if let ended, let begin = columns[ended.begin] {
        next = max(next, begin + label(of: ended).count + 5)
      }
      columns[time] = next
      next += 2
    }
    return columns
  }
}
