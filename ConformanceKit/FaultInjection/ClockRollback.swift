import Foundation
import StockroomCore

/// Writes while the clock is set back and forth, in a process whose clock can be set: see ``FakeClock``.
struct ClockRollback: CheckTask {
  enum Question: String, Codable, Sendable { case timestamps, order }

  /// How far the clock is ahead of the right time in each round, in seconds. It is never behind: then no timer would
  /// fire with the fake clock, and an engine that waits for one would hang.
  static let allOffsets = [90_000, 86_400, 82_800, 90_600, 3_600]
  /// The steps in which the clock is set back.
  static let stepsBack = Set(
    zip(ClockRollback.allOffsets, ClockRollback.allOffsets.dropFirst()).filter { $0.1 < $0.0 }
      .map { ClockRollback.step($0.1) })

  private static func step(_ offset: Int) -> String { "writing \(when(offset))" }
  private static func when(_ offset: Int) -> String { "with the clock \(offset) s ahead" }

  let place: URL
  let isPersistent: Bool
  let question: Question
  var offsets = ClockRollback.allOffsets

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try FakeClock.requireSettableClock()
    var engine = EngineUnderTest(try await makeEngine(place))
    var history = ClockHistory()
    for (round, offset) in offsets.enumerated() {
      FakeClock.set(secondsFromNow: offset)
      let when = Self.when(offset)
      try note(Self.step(offset))
      try await history.write(round, to: engine)
      try await verify(history: &history, engine, when)
      guard isPersistent else { continue }
      try await engine.close()
      engine.release()
      engine = EngineUnderTest(try await makeEngine(place))
      try await verify(history: &history, engine, "\(when), after reopening")
      try await history.overwrite(round, in: engine)
      try await verify(history: &history, engine, "\(when), after an overwrite after reopening")
    }
    try await engine.close()
  }

  private func verify(history: inout ClockHistory, _ engine: EngineUnderTest, _ when: String) async throws {
    switch question {
    case .timestamps: try await history.expectTimestamps(in: engine, when)
    case .order:
      try expect(
        try await engine.readAllEntries().map(\.key), is: history.order, "\(when), readAllEntries()")
    }
  }
}

/// The entries that were written, and the known limits of their timestamps.
private struct ClockHistory {
  private var times: [CacheKey: (created: Date, updated: Date)] = [:]
  /// The keys that are there, in the order of their first write.
  private(set) var order: [CacheKey] = []

  private mutating func isWritten(_ key: CacheKey) { if !order.contains(key) { order.append(key) } }

  private mutating func isRemoved(_ key: CacheKey) {
    order.removeAll { $0 == key }
    times[key] = nil
  }

  /// Writes new keys, overwrites keys in each way, and writes a key that was removed.
  mutating func write(_ round: Int, to engine: EngineUnderTest) async throws {
    let new = key("new in round \(9 - round)")
    try await engine.write(data("\(round)"), key: new)
    isWritten(new)
    let batch = [key("in a batch"), key("batch of round \(round)")]
    try await engine.write(batch.map { ($0, data("\(round)")) })
    for key in batch { isWritten(key) }
    let (removed, applied) = (key("comes back"), key("applied"))
    try await engine.apply([
      .write(data("\(round)"), key: applied), .remove(key: removed), .write(data("\(round)"), key: removed),
    ])
    isWritten(applied)
    isRemoved(removed)
    isWritten(removed)
    if engine.capabilities.contains(.transactions) {
      let inside = key("in a transaction")
      try await engine.withTransaction { try $0.write(data("\(round)"), key: inside) }
      isWritten(inside)
    }
    try await overwrite(round, in: engine)
  }

  mutating func overwrite(_ round: Int, in engine: EngineUnderTest) async throws {
    try await engine.write(data("again \(round)"), key: key("often"))
    isWritten(key("often"))
    if let first = order.first { try await engine.write(data("first \(round)"), key: first) }
  }

  mutating func expectTimestamps(in engine: EngineUnderTest, _ when: String) async throws {
    for key in order {
      guard let created = try await engine.createdAt(key: key),
        let updated = try await engine.updatedAt(key: key)
      else { throw Violation("\(when), a timestamp of \(key) was nil") }
      try expect(
        created <= updated,
        "\(when), createdAt of \(key) was \(describe(created)), after updatedAt, \(describe(updated))")
      if let last = times[key] {
        try expect(
          abs(created.timeIntervalSince(last.created)) <= precisionOfTime,
          "\(when), createdAt of \(key) changed from \(describe(last.created)) to \(describe(created)) "
            + "without a removal")
        try expect(
          updated.timeIntervalSince(last.updated) >= -precisionOfTime,
          "\(when), updatedAt of \(key) went back from \(describe(last.updated)) to \(describe(updated))")
      }
      times[key] = (created, updated)
    }
  }
}
