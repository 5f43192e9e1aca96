import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Writes and reads while the clock jumps, and the time zone changes, in a process whose clock can be set: see ``FakeClock``.
struct ClockJumps: CheckTask {
  enum Question: String, Codable, Sendable, CaseIterable {
    /// Whether all entries stay, and all writes are accepted.
    case contents
    /// Whether timestamps are right and do not change.
    case timestamps
    /// Whether the entries keep their order.
    case order
  }

  /// How the clock is set before a round.
  private struct Jump {
    /// The difference from the right time, in seconds.
    let offset: Int
    let what: String
    var timeZone: String?
  }

  let place: URL
  let isPersistent: Bool
  let question: Question

  /// First forward, in most cases further each time: to a leap day, to a 31 December that belongs to the first week of
  /// the next year, and past the maximum of signed and unsigned 32-bit seconds. Then back, in the end to January 2000,
  /// as on a board whose clock has no battery. That is before 2001, the reference date of some APIs.
  ///
  /// Foundation only knows time zones by name, and the C library only by their rules if the system has no database of them.
  private static func jumps(from now: Date) -> [Jump] {
    let day = 86_400
    func seconds(until moment: Int) -> Int { moment - Int(now.timeIntervalSince1970) }
    // 25 October 2026, 00:30 UTC and an hour later: both are 2:30 in Central Europe.
    let clocksGoBack = 1_792_888_200
    return [
      Jump(offset: 0, what: "at the beginning"),
      Jump(offset: 360, what: "after 6 minutes"),
      Jump(offset: day + 3_600, what: "after a day"),
      Jump(offset: day + 3_600, what: "in another time zone", timeZone: "America/New_York"),
      Jump(offset: 35 * day, what: "after 35 days"),
      Jump(offset: seconds(until: 1_835_438_400), what: "on 29 February 2028"),
      Jump(offset: 800 * day, what: "after 800 days", timeZone: "IST-5:30"),
      Jump(offset: seconds(until: 1_924_905_600), what: "on 31 December 2030"),
      Jump(offset: seconds(until: 1 << 31) + day, what: "after 19 January 2038"),
      Jump(offset: seconds(until: 1 << 32) + day, what: "after 7 February 2106"),
      Jump(offset: 0, what: "with the clock set back to the right time"),
      Jump(
        offset: seconds(until: clocksGoBack), what: "in the last hour of summer time",
        timeZone: "CET-1CEST,M3.5.0,M10.5.0/3"),
      Jump(offset: seconds(until: clocksGoBack) + 3_600, what: "in the first hour of winter time"),
      Jump(offset: -2 * day, what: "with the clock set back by two days", timeZone: "UTC0"),
      Jump(offset: seconds(until: 946_771_200), what: "on 2 January 2000"),
    ]
  }

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let start = Date()
    try FakeClock.requireSettableClock()
    if question == .timestamps {
      try note("writing with the clock three days ahead")
      try await requireClockOfProcess(makeEngine)
    }
    var engine = EngineUnderTest(try await makeEngine(place))
    var life = ClockJumpHistory()
    var removals: RemovalsAmongJumps?
    if question == .contents { removals = try await openForRemovals(makeEngine) }
    for (round, jump) in Self.jumps(from: start).enumerated() {
      FakeClock.set(secondsFromNow: jump.offset)
      if let timeZone = jump.timeZone {
        setenv("TZ", timeZone, 1)
        tzset()
        NSTimeZone.resetSystemTimeZone()
      }
      try note("reading \(jump.what)")
      try await verify(life, engine, jump.what)
      // In every other round, closes and reopens the place.
      if isPersistent, round % 2 == 1 {
        try await engine.close()
        engine.release()
        engine = EngineUnderTest(try await makeEngine(place))
        try await verify(life, engine, "\(jump.what), after reopening")
      }
      try note("writing \(jump.what)")
      try await life.write(round, to: engine)
      try await verify(life, engine, "\(jump.what), after writes")
      try await removals?.run(round, jump.what)
    }
    try await removals?.close()
    try await engine.close()
  }

  /// Skips the check if the engine's timestamps are those of a clock that ``FakeClock`` does not set, such as the one
  /// with which the system dates files.
  private func requireClockOfProcess(
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws {
    let ahead = 3 * 86_400
    FakeClock.set(secondsFromNow: ahead)
    defer { FakeClock.set(secondsFromNow: 0) }
    let engine = try await openBeside("clock", makeEngine)
    try await engine.write(data("v"), key: key("k"))
    let created = try await engine.createdAt(key: key("k"))
    let right = Date() - Double(ahead)
    try await engine.close()
    engine.release()
    guard let created, abs(created.timeIntervalSince(right)) < 3_600 else { return }
    throw Skip(reason: "The engine's timestamps are not set by the clock of its process.")
  }

  /// Opens engines on places next to that of the entries.
  private func openForRemovals(
    _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> RemovalsAmongJumps {
    RemovalsAmongJumps(
      try await openBeside("removals", makeEngine),
      emptied: try await openBeside("removals of everything", makeEngine))
  }

  private func openBeside(
    _ name: String, _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> EngineUnderTest {
    let beside = place.deletingLastPathComponent().appending(path: name, directoryHint: .isDirectory)
    // Opening checks cover that an engine creates missing directories.
    try FileManager.default.createDirectory(at: beside, withIntermediateDirectories: true)
    return EngineUnderTest(try await makeEngine(beside))
  }

  private func verify(_ life: ClockJumpHistory, _ engine: EngineUnderTest, _ when: String) async throws {
    switch question {
    case .contents: try await life.expectContents(in: engine, when)
    case .timestamps: try await life.expectTimestamps(in: engine, when)
    case .order:
      try expect(
        try await engine.readAllEntries().map(\.key), is: life.order, "\(when), readAllEntries()")
    }
  }
}

/// The entries that were written, with their times.
private struct ClockJumpHistory {
  private struct Entry {
    var data: Data
    var created: ClosedRange<Date>
    var updated: ClosedRange<Date>
    /// The timestamps that the engine returned for it after it was written.
    var found: (created: Date?, updated: Date?)
  }

  private var entries: [CacheKey: Entry] = [:]
  /// The keys that are there, in the order of their first write.
  private(set) var order: [CacheKey] = []

  /// Writes new keys in each way, overwrites an old key and one that is overwritten each time, and writes a key that
  /// was removed.
  mutating func write(_ round: Int, to engine: EngineUnderTest) async throws {
    let value = data("round \(round)")
    let new = key("new in round \(99 - round)")
    try await write([.write(value, key: new)], value, engine) { try await engine.write(value, key: new) }
    let batch = [key("in a batch"), key("batch of round \(round)")]
    try await write(batch.map { .write(value, key: $0) }, value, engine) {
      try await engine.write(batch.map { ($0, value) })
    }
    let applied: [StorageOperation] = [
      .remove(key: key("comes back")), .write(value, key: key("comes back")),
    ]
    try await write(applied, value, engine) { try await engine.apply(applied) }
    if engine.capabilities.contains(.transactions) {
      let inside = key("in a transaction")
      try await write([.write(value, key: inside)], value, engine) {
        try await engine.withTransaction { try $0.write(value, key: inside) }
      }
    }
    if round > 3, let old = order.first(where: { $0 == key("new in round \(99 - round + 3)") }) {
      try await write([.write(value, key: old)], value, engine) { try await engine.write(value, key: old) }
    }
  }

  private mutating func write(
    _ operations: [StorageOperation], _ value: Data, _ engine: EngineUnderTest,
    _ call: () async throws -> Void
  ) async throws {
    let window = try await window(call)
    var written: [CacheKey] = []
    for operation in operations {
      switch operation {
      case .write(let data, let key):
        if entries[key] == nil { order.append(key) }
        // If the clock has been set back, updatedAt does not go backwards.
        let earlier = entries[key]?.updated.upperBound ?? .distantPast
        let updated = window.lowerBound...max(window.upperBound, earlier)
        entries[key] = Entry(
          data: data, created: entries[key]?.created ?? window, updated: updated, found: (nil, nil))
        written.append(key)
      case .remove(let key):
        entries[key] = nil
        order.removeAll { $0 == key }
      case .removeAll: break
      }
    }
    for key in written {
      entries[key]?.found = (try await engine.createdAt(key: key), try await engine.updatedAt(key: key))
    }
  }

  func expectContents(in engine: EngineUnderTest, _ when: String) async throws {
    for key in order {
      try expect(try await engine.read(key: key), is: entries[key]?.data, "\(when), read(key:) of \(key)")
      try expect(try await engine.keyExists(key), is: true, "\(when), keyExists(_:) of \(key)")
    }
    try expect(try await engine.keyCount(), is: order.count, "\(when), keyCount()")
    try expect(
      try await engine.read(keys: order), is: order.map { entries[$0]?.data ?? Data() },
      "\(when), read(keys:)")
    let all = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
    try expect(
      all, are: order.sorted().map { ($0, entries[$0]?.data ?? Data()) },
      "readAllDataAndKeys() \(when), sorted,")
    try expect(
      try await engine.scan(.all, limit: nil).count, is: order.count,
      "\(when), the number of entries of a scan")
  }

  func expectTimestamps(in engine: EngineUnderTest, _ when: String) async throws {
    for key in order {
      guard let entry = entries[key] else { continue }
      let created = try await engine.createdAt(key: key)
      let updated = try await engine.updatedAt(key: key)
      for (name, date, window, found) in [
        ("createdAt", created, entry.created, entry.found.created),
        ("updatedAt", updated, entry.updated, entry.found.updated),
      ] {
        guard let date, let found else { throw Violation("\(when), \(name) of \(key) was nil") }
        try expect(
          window.contains(date),
          "\(when), \(name) of \(key) was \(describe(date)), but the key was written between "
            + "\(describe(window.lowerBound)) and \(describe(window.upperBound))")
        try expect(
          abs(date.timeIntervalSince(found)) <= precisionOfTime,
          "\(when), \(name) of \(key) changed from \(describe(found)) to \(describe(date)) without a write")
      }
      if let created, let updated {
        try expect(
          created <= updated,
          "\(when), createdAt of \(key) was \(describe(created)), after updatedAt, \(describe(updated))")
      }
    }
  }
}
