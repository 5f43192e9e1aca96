import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// When merges wrote that were interrupted, by the clock of the target: each from the creation of its marker to the last update of it.
struct InterruptedMerges: Sendable {
  private var times: [ClosedRange<Timestamp>] = []

  /// None.
  init() {}

  /// That of a marker, and those that had been interrupted before it.
  init(_ marker: Data, createdAt: Date, updatedAt: Date) {
    // What cannot be read says nothing: what was written then counts as written by others.
    times = String(decoding: marker, as: UTF8.self).split(separator: "\n").compactMap { line in
      let numbers = line.split(separator: " ").map { Int64($0) }
      guard numbers.count == 2, let first = numbers[0], let last = numbers[1], first <= last else {
        return nil
      }
      return Timestamp(nanoseconds: first)...Timestamp(nanoseconds: last)
    }
    let (first, last) = (Timestamp(createdAt), Timestamp(updatedAt))
    if first < last { times.append(first...last) }
  }

  /// Whether what was updated at this time was written by one of them.
  func contain(_ time: Timestamp) -> Bool {
    times.contains { $0.lowerBound < time && time <= $0.upperBound }
  }

  /// What the next marker has besides its text: a line for each.
  var lines: String {
    times.map { "\n\($0.lowerBound.nanoseconds) \($0.upperBound.nanoseconds)" }.joined()
  }
}
