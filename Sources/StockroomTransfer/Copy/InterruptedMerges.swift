import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The times at which interrupted merges wrote, by the clock of the target.
struct InterruptedMerges: Sendable {
  private var times: [ClosedRange<Timestamp>] = []

  /// Creates an empty set.
  init() {}

  /// The merges that a marker contains. Each has a line with two numbers, the times of its beginning and its end. The
  /// merge that wrote the marker has a line with its beginning only; its end is the time of the marker.
  init(_ marker: Data, updatedAt: Date) {
    // A line that cannot be parsed is ignored: entries written then count as written by others.
    for line in String(decoding: marker, as: UTF8.self).split(separator: "\n") {
      let numbers = line.split(separator: " ").map { Int64($0).map(Timestamp.init(nanoseconds:)) }
      guard 1...2 ~= numbers.count, let first = numbers[0] else { continue }
      guard let last = numbers.count == 2 ? numbers[1] : Timestamp(updatedAt), first < last else { continue }
      times.append(first...last)
    }
  }

  /// Whether an entry that was updated at this time was written by one of them.
  func contain(_ time: Timestamp) -> Bool {
    times.contains { $0.lowerBound < time && time <= $0.upperBound }
  }

  /// The contents of a marker in addition to its text.
  ///
  /// - Parameter start: When the merge that writes the marker began; nil if it has written nothing yet.
  func lines(startingAt start: Timestamp?) -> String {
    let times = times.map { "\n\($0.lowerBound.nanoseconds) \($0.upperBound.nanoseconds)" }.joined()
    return times + (start.map { "\n\($0.nanoseconds)" } ?? "")
  }
}
