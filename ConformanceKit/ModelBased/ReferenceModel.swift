#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The expected contents of an engine after a sequence: a dictionary, with the times and the order of its writes.
struct ReferenceModel: Sendable {
  /// When a call was made.
  struct TimeWindow: Sendable {
    /// The number of the call in the sequence.
    let call: Int
    /// The clock readings before and after the call.
    let window: ClosedRange<Date>
    /// The time that an imported entry was written with, as in ``DatedEntry``, instead of the time of the call.
    var givenTime: Int?

    /// - Parameters before, after: The clock may be set back between them.
    init(call: Int, before: Date, after: Date) {
      self.call = call
      window = min(before, after)...max(before, after)
    }

    fileprivate init(call: Int, window: ClosedRange<Date>, givenTime: Int? = nil) {
      (self.call, self.window, self.givenTime) = (call, window, givenTime)
    }

    /// Extends the window to include these as well.
    fileprivate mutating func extend(to others: TimeWindow?...) {
      let windows = others.compactMap { $0?.window } + [window]
      let (low, high) = (windows.map(\.lowerBound).min(), windows.map(\.upperBound).max())
      if let low, let high { self = TimeWindow(call: call, window: low...high) }
    }

    fileprivate init(call: Int, givenTime: Int) {
      let date = DatedEntry.date(givenTime)
      self.init(call: call, window: date...date, givenTime: givenTime)
    }
  }

  /// A time that the engine returned, with the call that returned it.
  struct Seen: Sendable {
    let date: Date
    let call: Int
  }

  struct Entry: Sendable {
    var value: CommandValue
    var data: Data
    /// Increases with each first write.
    let sequence: Int
    let created: TimeWindow
    var updated: TimeWindow
    /// The createdAt that the engine has returned. It must stay the same until the key is removed.
    var seenCreated: Seen?
    /// The updatedAt that the engine has returned since the last write.
    var seenUpdated: Seen?
    /// The updatedAt that it returned before the last write. A later one must not be earlier.
    var seenUpdatedBefore: Seen?
  }

  private(set) var entries: [CacheKey: Entry] = [:]
  private var sequence = 0
  /// Whether imported entries keep their times.
  let keepsTimes: Bool

  /// - Parameter capabilities: Those of the engine.
  init(_ capabilities: EngineCapabilities) { keepsTimes = capabilities.contains(.preservesTimestamps) }

  /// The keys in the order in which they were first written (rule R6).
  var keysInOrder: [CacheKey] {
    entries.sorted { $0.value.sequence < $1.value.sequence }.map(\.key)
  }

  subscript(_ key: CacheKey) -> Entry? { entries[key] }

  /// Applies the steps one after the other (rules W3 and W5).
  mutating func apply(_ steps: [CommandStep], at moment: TimeWindow) {
    for step in steps {
      switch step {
      case .write(let written): write(written, at: moment)
      case .writeEntry(let dated): write(dated, at: moment)
      case .remove(let key): entries[key] = nil
      case .removeAll: entries = [:]
      }
    }
  }

  private mutating func write(_ written: CommandEntry, at moment: TimeWindow) {
    guard var entry = entries[written.key] else {
      sequence += 1
      entries[written.key] = Entry(
        value: written.value, data: written.value.data, sequence: sequence, created: moment, updated: moment)
      return
    }
    (entry.value, entry.data) = (written.value, written.value.data)
    // The time of the write, or the previous time if that is later, because the clock was set back or the entry has a
    // time in the future.
    let before = entry.updated
    let earliest = max(moment.window.lowerBound, before.window.lowerBound)
    let latest = max(moment.window.upperBound, before.window.upperBound)
    entry.updated = TimeWindow(
      call: moment.call, window: earliest...latest,
      givenTime: before.window.lowerBound > moment.window.upperBound ? before.givenTime : nil)
    entry.seenUpdatedBefore = entry.seenUpdated ?? entry.seenUpdatedBefore
    entry.seenUpdated = nil
    entries[written.key] = entry
  }

  private mutating func write(_ dated: DatedEntry, at moment: TimeWindow) {
    let (key, value) = (dated.entry.key, dated.entry.value)
    if entries[key] == nil { sequence += 1 }
    var (created, updated) = (
      TimeWindow(call: moment.call, givenTime: dated.createdAt),
      TimeWindow(call: moment.call, givenTime: dated.updatedAt)
    )
    if !keepsTimes {
      // The times of the call or of the previous write, or the given ones: an engine may keep times without claiming
      // that it does.
      created.extend(to: moment, entries[key]?.created)
      updated.extend(to: moment, entries[key]?.updated)
    }
    entries[key] = Entry(
      value: value, data: value.data, sequence: entries[key]?.sequence ?? sequence, created: created,
      updated: updated)
  }

  /// Records the time of an entry that the engine returned.
  mutating func see(_ date: Date, _ time: CommandTimestamp, of key: CacheKey, call: Int) {
    switch time {
    case .created: entries[key]?.seenCreated = Seen(date: date, call: call)
    case .updated: entries[key]?.seenUpdated = Seen(date: date, call: call)
    }
  }
}

/// One of the two times that an entry has.
enum CommandTimestamp: Sendable, Hashable {
  case created, updated

  var method: String { self == .created ? "createdAt" : "updatedAt" }
}
