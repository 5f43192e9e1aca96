#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// One call among many others: rule C1.

/// Each task changes a key of its own, reads it, and reads it again after others had a turn.
func writeAndReadBack(_ engine: EngineUnderTest, _ rounds: RoundLimit) async throws {
  let taskCount = 12
  let changes = ChangeMethod.all(engine.capabilities)
  try await gather(0..<taskCount) { task in
    for (number, _) in rounds.share(of: task, among: taskCount).enumerated() {
      let own = key("task-\(task)-\(number % 5)")
      let value = data("\(task) wrote this as number \(number)")
      // A third of them are single writes. Each of the others is a change of another kind.
      let other = number / 3 * 2 + number % 3 - 1
      let change = number.isMultiple(of: 3) ? ChangeMethod.write : changes[other % changes.count]
      // Removing everything would also remove what other tasks wrote.
      let name = change == .removeAll ? wayOfReplacing.name : change.call
      var wanted: Data? = value
      switch change {
      case .removeAll: try await wayOfReplacing.write(engine, [(own, value)])
      case _ where change.removes:
        try await change.perform([(own, value)], in: engine)
        wanted = nil
      default: try await change.performAmongMany([(own, value)], in: engine)
      }
      for look in 1...2 {
        let found = try await engine.read(key: own)
        try expect(
          found, is: wanted,
          "read(key:) number \(look), after change number \(number) of the same task, by \(name),"
        )
        await Task.yield()
      }
    }
  }
}

/// Has a hundred tasks write. One of the writes must be refused.
func oneBadAmongMany(_ engine: EngineUnderTest, _ round: Int) async throws {
  let bad = badNumber(round)
  let outcomes = try await gather(0..<100) { number -> String? in
    let key = number == bad ? key("") : oneOfMany(number)
    do {
      if number.isMultiple(of: 5) {
        try await engine.write([(key, data("round \(round)"))])
      } else {
        try await engine.write(data("round \(round)"), key: key)
      }
      return nil
    } catch {
      return shortened(String(describing: error))
    }
  }
  for (number, error) in outcomes.enumerated() {
    if number == bad {
      if error == nil { throw Violation("the write of an empty key returned", rule: .k1) }
      continue
    }
    if let error { throw Violation("a write threw while another call used an empty key: \(error)") }
    try expect(
      try await engine.read(key: oneOfMany(number)), is: data("round \(round)"),
      "read(key:) of an entry acknowledged while another call used an empty key")
  }
}

/// Has a hundred tasks read the written entries by one method. One of the reads must be refused. An engine may combine
/// several reads into one.
func oneBadReadAmongMany(_ engine: EngineUnderTest, _ round: Int) async throws {
  let bad = badNumber(round)
  let methods = ReadMethod.allCases.filter { $0.isOfOneKey || $0.isOfManyKeys }
  let method = methods[round % methods.count]
  try await gather(0..<100) { number in
    if number == bad {
      try await expectRefusal(of: method.call) { _ = try await method.found(of: [key("")], in: engine) }
      return
    }
    let found: [Data?]
    do {
      found = try await method.found(of: [oneOfMany(number)], in: engine)
    } catch let failure as CallFailure {
      throw Violation("\(method.call) failed while another call used an empty key: \(failure)")
    }
    try expect(
      found, is: [method.givesValues ? data("round \(round)") : nil],
      "\(method.call), while another call used an empty key,")
  }
}

/// Has a hundred tasks remove the written entries. One of the removals must be refused.
func oneBadRemovalAmongMany(_ engine: EngineUnderTest, _ round: Int) async throws {
  let bad = badNumber(round)
  try await gather(0..<100) { number in
    let method = number.isMultiple(of: 5) ? ChangeMethod.removeMany : .remove
    if number == bad {
      try await expectRefusal(of: method.call) { try await method.perform([(key(""), Data())], in: engine) }
      return
    }
    do {
      try await method.perform([(oneOfMany(number), Data())], in: engine)
    } catch let failure as CallFailure {
      throw Violation("\(method.call) failed while another call used an empty key: \(failure)")
    }
  }
  let left = try await engine.keysExist((0..<100).map(oneOfMany))
  try expect(left, is: [], "the entries left after removals while another call used an empty key")
}

/// Has twenty tasks make changes of one kind, for each kind that writes several entries. One of the changes must be
/// refused. An engine may combine the changes of several tasks into one.
func oneBadBatchAmongMany(_ engine: EngineUnderTest, _ round: Int) async throws {
  for method in ChangeMethod.writing(engine.capabilities) where !method.isOfOneKey {
    let bad = badNumber(round + 1) % 20
    @Sendable func written(_ number: Int) -> [(key: CacheKey, data: Data)] {
      [
        (key("\(method.rawValue) \(number)"), data("round \(round)")),
        (key("beside \(number)"), data("beside")),
      ]
    }
    try await gather(0..<20) { number in
      if number == bad {
        let entries = written(number) + [(key(""), data("bad"))]
        return try await expectRefusal(of: method.call) { try await method.perform(entries, in: engine) }
      }
      do {
        try await method.performAmongMany(written(number), in: engine)
      } catch let failure as CallFailure {
        throw Violation("\(method.call) failed while another call used an empty key: \(failure)")
      }
    }
    let wanted = (0..<20).filter { $0 != bad }.map { written($0)[0] }
    try expect(
      try await engine.readDataAndKeys(keys: wanted.map(\.key)), are: wanted,
      "the entries that \(method.call) had written while another call used an empty key")
  }
}

/// The number of the task whose call must be refused, a different one in each round.
private func badNumber(_ round: Int) -> Int { round * 37 % 100 }

private func oneOfMany(_ number: Int) -> CacheKey { key("one of many, \(number)") }

/// Fails if the call with an empty key returns.
private func expectRefusal(of name: String, _ call: () async throws -> Void) async throws {
  do { try await call() } catch is CallFailure { return }
  throw Violation("\(name) of an empty key returned", rule: .k1)
}
