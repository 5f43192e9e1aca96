import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// When merges wrote that were interrupted, by the clock of the target.
struct InterruptedMerges: Sendable {
  private var times: [ClosedRange<Timestamp>] = []

  /// None.
  init() {}

  /// Those that a marker says: a line of two numbers for each, and one number for when the merge began that updated it last.
  init(_ marker: Data, updatedAt: Date) {
    // What cannot be read says nothing: what was written then counts as written by others.
    for line in String(decoding: marker, as: UTF8.self).split(separator: "\n") {
      let numbers = line.split(separator: " ").map { Int64($0).map(Timestamp.init(nanoseconds:)) }
      guard 1...2 ~= numbers.count, let first = numbers[0] else { continue }
      guard let last = numbers.count == 2 ? numbers[1] : Timestamp(updatedAt), first < last else { continue }
      times.append(first...last)
    }
  }

  /// Whether what was updated at this time was written by one of them.
  func contain(_ time: Timestamp) -> Bool {
    times.contains { $0.lowerBound < time && time <= $0.upperBound }
  }

  /// What a marker has besides its text.
  ///
  /// - Parameter start: When the merge began that writes the marker; nil if it has written nothing yet.
  func lines(startingAt start: Timestamp?) -> String {
    let times = times.map { "\n\($0.lowerBound.nanoseconds) \($0.upperBound.nanoseconds)" }.joined()
    return times + (start.map { "\n\($0.nanoseconds)" } ?? "")
  }
}
