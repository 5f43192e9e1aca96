#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The contents of an engine after a sequence, according to the contract: a dictionary, with the times and
/// the order of its writes.
struct ReferenceModel: Sendable {
  /// When a call was made.
  struct TimeWindow: Sendable {
    /// The number of the call in the sequence.
    let call: Int
    /// The clock readings before and after the call.
    let window: ClosedRange<Date>
    /// The time that an entry was written with, instead of that of the call, as in ``DatedEntry``.
    var givenTime: Int?

    /// - Parameters before, after: The clock may be set back between them.
    init(call: Int, before: Date, after: Date) {
      self.call = call
      window = min(before, after)...max(before, after)
    }

    fileprivate init(call: Int, window: ClosedRange<Date>, givenTime: Int? = nil) {
      (self.call, self.window, self.givenTime) = (call, window, givenTime)
    }

    /// Allows these moments and all between them, too.
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

  /// A time that the engine gave, and in answer to which call.
  struct Seen: Sendable {
    let date: Date
    let call: Int
  }

  struct Entry: Sendable {
    var value: CommandValue
    var data: Data
    /// Grows from each first write to the next.
    let sequence: Int
    let created: TimeWindow
    var updated: TimeWindow
    /// What the engine has said is createdAt: it must say the same until the key is removed.
    var seenCreated: Seen?
    /// What the engine has said is updatedAt since the last write.
    var seenUpdated: Seen?
    /// What it said before the last write: updatedAt does not go behind it.
    var seenUpdatedBefore: Seen?
  }

  private(set) var entries: [CacheKey: Entry] = [:]
  private var sequence = 0
  /// Whether entries that were written as another engine had them keep their times.
  let keepsTimes: Bool

  /// - Parameter capabilities: Those of the engine.
  init(_ capabilities: EngineCapabilities) { keepsTimes = capabilities.contains(.preservesTimestamps) }

  /// The keys in the order in which they were first written (rule R6).
  var keysInOrder: [CacheKey] {
    entries.sorted { $0.value.sequence < $1.value.sequence }.map(\.key)
  }

  subscript(_ key: CacheKey) -> Entry? { entries[key] }

  /// Does the steps one after the other (rules W3 and W5).
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
    // The time of the write, or the time before if the clock was set back, or that was ahead.
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
      // The times of the call, or of the write before; or the given ones, as an engine may keep what it does not say that it keeps.
      created.extend(to: moment, entries[key]?.created)
      updated.extend(to: moment, entries[key]?.updated)
    }
    entries[key] = Entry(
      value: value, data: value.data, sequence: entries[key]?.sequence ?? sequence, created: created,
      updated: updated)
  }

  /// Remembers what the engine gave as the time of an entry.
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
