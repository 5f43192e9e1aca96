import Foundation
import StockroomCore

/// Operations on a store, each of which runs on a full disk and on disks with a few free blocks.
struct FullDiskScenario: CheckTask {
  /// Where the small file system is.
  let disk: URL
  let isAtomic: Bool
  let hasTransactions: Bool

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    for step in FullDiskStep.allCases where step != .transaction || hasTransactions {
      for room in step.rooms {
        let when = "\(step) with \(room) blocks left on the disk"
        try note(when)
        let place = disk.appending(path: "\(step)-\(room)", directoryHint: .isDirectory)
        let ballast = BallastFile(on: disk)
        var trial = FullDiskTrial(
          step: step, when: when, place: place, isAtomic: isAtomic || step == .transaction,
          makeEngine: makeEngine)
        do {
          try await trial.prepare()
          try ballast.fill(leavingBlocks: room)
          try await trial.performOnFullDisk()
          try ballast.remove()
          // Continuing with the engine and reopening it, once there is space, must have the same result.
          if [1, 4, 8].contains(room) { try await trial.reopen() }
          try await trial.goOn()
        } catch let failure as CallFailure {
          throw Violation("\(trial.stage), \(failure)")
        }
        try FileManager.default.removeItem(at: place)
      }
    }
  }
}

enum FullDiskStep: String, CaseIterable, CustomStringConvertible {
  case opening, write, overwrite, overwrites, batch, imported, applied, transaction, removal, removals,
    removingAll
  case closing, reopening

  /// The numbers of free blocks of 4 KiB to test with.
  var rooms: [Int] {
    // Enough space for many small records, but not for a copy of all entries, which compacting a log requires.
    self == .overwrites ? [8] : [0, 1, 4, 16]
  }

  /// A clause after "during".
  var description: String {
    switch self {
    case .opening: "opening a new place"
    case .write: "write(_:key:)"
    case .overwrite: "an overwrite"
    case .overwrites: "400 overwrites"
    case .batch: "write(_:) of many"
    case .imported: "writeEntries(_:) of many"
    case .applied: "apply(_:)"
    case .transaction: "withTransaction(_:)"
    case .removal: "remove(key:)"
    case .removals: "remove(keys:)"
    case .removingAll: "removeAllData()"
    case .closing: "close()"
    case .reopening: "opening a store"
    }
  }

  var operations: [StorageOperation] {
    switch self {
    case .opening, .closing, .reopening: []
    case .write: [.write(noise(9_000, seed: 21), key: longKey("new"))]
    case .overwrite: [.write(noise(12_000, seed: 22), key: keys(1)[0])]
    case .overwrites: (0..<400).map { .write(data("overwrite \($0)"), key: keys(1)[0]) }
    case .batch, .imported: writes(12, of: 5_000)
    case .applied:
      [.remove(key: keys(2)[1])] + writes(6, of: 9_000) + [.write(data("small"), key: keys(1)[0])]
    case .transaction:
      [.remove(key: keys(4)[3])] + writes(5, of: 9_000) + [.write(data("smaller"), key: keys(1)[0])]
    case .removal: [.remove(key: keys(3)[2])]
    case .removals: keys(8).map { .remove(key: $0) }
    case .removingAll: [.removeAll]
    }
  }

  /// Writes with different values, so that each of them needs space.
  private func writes(_ count: Int, of size: Int) -> [StorageOperation] {
    keys(count, prefix: "\(rawValue)-").enumerated().map {
      .write(noise(size, seed: UInt64(30 + $0.offset)), key: $0.element)
    }
  }

  func perform(on engine: EngineUnderTest) async throws {
    switch (self, operations) {
    case (.opening, _), (.closing, _), (.reopening, _): return
    case (.write, let operations), (.overwrite, let operations), (.overwrites, let operations):
      for case .write(let data, let key) in operations { try await engine.write(data, key: key) }
    case (.batch, let operations): try await engine.write(operations.compactMap(\.written))
    case (.imported, let operations):
      try await wayOfImporting.write(engine, operations.compactMap(\.written))
    case (.applied, let operations): try await engine.apply(operations)
    case (.transaction, let operations):
      try await engine.withTransaction { try $0.apply(operations) }
    case (.removal, _): try await engine.remove(key: keys(3)[2])
    case (.removals, _): try await engine.remove(keys: keys(8))
    case (.removingAll, _): try await engine.removeAllData()
    }
  }
}

/// One step on a full disk, with its preparation and its checks.
struct FullDiskTrial: Sendable {
  let step: FullDiskStep
  let when: String
  let place: URL
  let isAtomic: Bool
  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  private var engine: EngineUnderTest?
  private var before: [CacheKey: Data] = [:]
  private var after: [CacheKey: Data] = [:]
  /// The entries before the step, with their times.
  private var untouched: [StorageEntry] = []
  private var isDone = false
  /// The current step of the trial, as a clause.
  private(set) var stage = ""

  init(
    step: FullDiskStep, when: String, place: URL, isAtomic: Bool,
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine
  ) {
    (self.step, self.when, self.place, self.isAtomic) = (step, when, place, isAtomic)
    self.makeEngine = makeEngine
  }

  /// Writes the entries before the step, while there is space.
  mutating func prepare() async throws {
    stage = "before \(when), while there was room"
    if step == .opening { return }
    let entries = keys(20).enumerated().map { (key: $0.element, data: noise($0.offset * 150, seed: 20)) }
    before = Dictionary(uniqueKeysWithValues: entries.map { ($0.key, $0.data) })
    after = before
    for operation in step.operations { operation.apply(to: &after) }
    do {
      let engine = try await opened()
      self.engine = engine
      try await engine.write(entries)
      untouched = try await engine.readAllEntries()
      try await letClockAdvance()
    } catch let failure as CallFailure where failure.isDiskFull {
      throw Skip(reason: "An empty disk of \(SmallFileSystem.usualSize) MiB is too small for the engine.")
    }
    if step == .reopening { try await close() }
  }

  mutating func performOnFullDisk() async throws {
    stage = "during \(when)"
    do {
      switch step {
      case .opening, .reopening: engine = try await opened()
      case .closing: try await close()
      case .overwrites: if let engine { try await overwrite(in: engine) }
      default: if let engine { try await step.perform(on: engine) }
      }
      isDone = true
    } catch let failure as CallFailure {
      guard failure.isDiskFull else { throw Violation("\(stage), \(failure), which is not diskFull") }
    }
    if step == .closing { engine = nil }
    try await look("after \(when)")
  }

  /// After many overwrites, the acknowledged ones must remain.
  private mutating func overwrite(in engine: EngineUnderTest) async throws {
    for operation in step.operations {
      if case .write(let data, let key) = operation { try await engine.write(data, key: key) }
      operation.apply(to: &before)
    }
  }

  mutating func reopen() async throws {
    stage = "reopening, once there was room, after \(when)"
    if engine != nil { try await close() }
    engine = try await opened()
    try await look(stage)
  }

  /// Frees space and continues.
  mutating func goOn() async throws {
    stage = "once there was room again, after \(when)"
    let engine: EngineUnderTest
    if let open = self.engine { engine = open } else { engine = try await opened() }
    self.engine = engine
    try await look(stage)
    if !isDone {
      try await step.perform(on: engine)
      isDone = true
      try await look("after doing it again \(stage)")
    }
    try await engine.write(data("afterwards"), key: key("afterwards"))
    after[key("afterwards")] = data("afterwards")
    try await close()
    self.engine = try await opened()
    try await look("after reopening, \(stage)")
    try await close()
  }

  private func opened() async throws -> EngineUnderTest {
    do {
      return EngineUnderTest(try await makeEngine(place))
    } catch let failure as CallFailure {
      throw failure
    } catch {
      throw CallFailure(call: "opening the engine", error: error)
    }
  }

  private mutating func close() async throws {
    defer { engine = nil }
    try await engine?.close()
    engine?.release()
  }

  /// Fails unless the contents are as expected.
  private func look(_ when: String) async throws {
    guard let engine else { return }
    let expected = isDone ? after : before
    let stored = Dictionary(
      try await engine.readAllDataAndKeys().map { ($0.key, $0.data) }, uniquingKeysWith: { first, _ in first }
    )
    // A batch that is not atomic may have been done in part.
    let mayBeMixed = !isDone && !isAtomic
    for key in Set(expected.keys).union(stored.keys).union(after.keys) {
      if stored[key] == expected[key] { continue }
      if mayBeMixed && stored[key] == after[key] { continue }
      throw Violation(
        "\(when), \(key) had \(describe(stored[key] as Any)) instead of \(describe(expected[key] as Any))")
    }
    if mayBeMixed { return }
    if !isDone, step != .overwrites {
      try expectUntouched(try await engine.readAllEntries(), since: untouched, when)
    }
    for (key, value) in expected {
      try expect(try await engine.read(key: key), is: value, "\(when), read(key:) of \(key)")
    }
    try expect(try await engine.keyCount(), is: expected.count, "\(when), keyCount()")
  }
}

extension CallFailure {
  var isDiskFull: Bool {
    // If the check runs in this process, the error is wrapped twice.
    (error as? CallFailure)?.isDiskFull ?? ((error as? StorageError)?.code == .diskFull)
  }
}
