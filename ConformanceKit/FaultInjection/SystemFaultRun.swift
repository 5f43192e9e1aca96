import Foundation
import StockroomCore

/// Lives the life of a small store in which one call of the system fails, and reports how the engine stood that.
struct SystemFaultRun: WorkerTask {
  enum Scenario: Codable, Sendable {
    /// One call after the other.
    case steps(Int)
    /// Changes of several tasks at a time, in a place that was opened before anything fails.
    case company
  }

  enum Message: Codable, Sendable {
    /// What comes next, as a clause after "during".
    case step(String)
    /// How many calls of each kind there were, the number of the first of each when it was opened again, and what the one
    /// was about that failed.
    case end(counts: [String: Int], whenReopened: [String: Int], failedFile: String?)
    case broken(Violation)
    case impossible(reason: String)
  }

  /// A directory with a name that no other has.
  let place: URL
  let scenario: Scenario
  /// Nil to see which calls there are.
  let fault: SystemFault?
  let isAtomic: Bool
  let hasTransactions: Bool
  /// Whether the machine forgets, when the engine is closed, what a failed sync has left behind.
  let losesUnsynced: Bool

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws {
    let interceptor: SystemCallInterceptor
    do {
      interceptor = try SystemCallInterceptor.shared()
    } catch let skip as Skip {
      return try send(.impossible(reason: skip.reason))
    }
    defer { interceptor.end() }
    var trial: any FaultTrial =
      switch scenario {
      case .steps(let count):
        SystemFaultTrial(self, count, interceptor, makeEngine) { try send(.step($0)) }
      case .company: CompanyFaultTrial(self, interceptor, makeEngine) { try send(.step($0)) }
      }
    do {
      try await trial.run()
    } catch let violation as Violation {
      try send(.broken(violation))
    } catch let failure as CallFailure {
      try send(.broken(Violation("\(trial.stage), \(failure)")))
    }
    func named(_ numbers: [SystemCall: Int]) -> [String: Int] {
      Dictionary(uniqueKeysWithValues: numbers.map { ($0.key.rawValue, $0.value) })
    }
    try send(
      .end(
        counts: named(trial.counts), whenReopened: named(trial.whenReopened),
        failedFile: interceptor.observation.failedFile))
  }
}

/// The course with one call after the other.
private struct SystemFaultTrial: FaultTrial {
  private let task: SystemFaultRun
  private let length: Int
  private let interceptor: SystemCallInterceptor
  private let makeEngine: @Sendable (URL) async throws -> any StorageEngine
  private let note: (String) throws -> Void
  private var engine: EngineUnderTest?
  private var contents = SystemFaultContents()
  private var probes = 0
  /// Whether it has been opened since the last change that was tried.
  private var isReopened = false
  /// Whether nothing has failed since it was opened, and nothing will any more.
  private var mustWork = false
  private(set) var whenReopened: [SystemCall: Int] = [:]
  private(set) var stage = ""
  var counts: [SystemCall: Int] { interceptor.observation.counts }

  init(
    _ task: SystemFaultRun, _ length: Int, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping (String) throws -> Void
  ) {
    (self.task, self.length, self.interceptor, self.makeEngine) = (task, length, interceptor, makeEngine)
    self.note = note
  }

  private var hasFailed: Bool { interceptor.observation.failedFile != nil }

  private mutating func enter(_ stage: String) throws {
    self.stage = stage
    try note(stage)
  }

  mutating func run() async throws {
    interceptor.begin(at: task.place, fault: task.fault, losesUnsynced: task.losesUnsynced)
    try enter("opening a new place")
    try await open()
    for number in 0..<length {
      let step = SystemFaultStep(number, hasTransactions: task.hasTransactions)
      try enter("\(step)")
      let hadFailed = hasFailed
      switch step {
      case .change(let method, let operations): try await change(method, operations)
      case .look(let look): try await self.look(look)
      case .reopen:
        try await close()
        let before = interceptor.observation.counts
        try await open()
        if !whenReopened.isEmpty { break }
        for (call, count) in interceptor.observation.counts where count > before[call] ?? 0 {
          whenReopened[call] = 1 + (before[call] ?? 0)
        }
      }
      // Whatever the call was that failed, all reads must agree about that.
      if !hadFailed, hasFailed { try await lookAtAll() }
    }
    try await close()
    interceptor.endFault()
    try enter("opening it with nothing failing any more")
    try await open()
    try await lookAtAll()
    try enter("writing with nothing failing any more")
    try await change(.write, [.write(data("afterwards"), key: key("afterwards"))])
    try await close()
    try await expectNothingOpen()
    try await open()
    try await lookAtAll()
    try await close()
  }

  /// Fails if a descriptor was forgotten where a call failed. A thread that has something open may need a moment to end.
  private func expectNothingOpen() async throws {
    let deadline = ContinuousClock.now + .seconds(5)
    while case let open = System.openFiles(in: task.place), !open.isEmpty {
      if ContinuousClock.now > deadline {
        throw Violation("closed, it had \(open.joined(separator: ", ")) open", rule: .o4)
      }
      await Task.yield()
    }
  }

  // MARK: Steps

  /// Opens the engine, again if that fails: one call fails, and no other.
  private mutating func open() async throws {
    // Nobody can be asked to open a store on a disk that takes nothing any more.
    if hasFailed { interceptor.endFault() }
    mustWork = false
    var reasons: [String] = []
    for _ in 0..<2 {
      let hadFailed = hasFailed
      do {
        engine = EngineUnderTest(try await makeEngine(task.place))
        (isReopened, mustWork) = (true, hadFailed)
        return
      } catch {
        try check(error, of: "opening the engine")
        reasons.append("\(error)")
      }
    }
    throw Violation(
      "\(stage), the engine could not be opened twice, although one call had failed: \(reasons.joined(separator: "; "))"
    )
  }

  private mutating func close() async throws {
    guard let engine else { return }
    self.engine = nil
    do {
      try await engine.close()
    } catch {
      try check(error, of: "close()")
    }
    engine.release()
    if task.losesUnsynced { try interceptor.loseUnsynced(in: task.place) }
  }

  private mutating func change(_ method: ChangeMethod, _ operations: [StorageOperation]) async throws {
    guard let engine else { return }
    isReopened = false
    do {
      try await method.perform(operations, in: engine)
      contents.acknowledge(operations)
    } catch {
      try check(error, of: method.call)
      contents.refuse(operations, isAtomic: task.isAtomic || method == .transaction)
      // What it was refused is put right by the next write, or is not there when the store is opened next.
      if task.fault?.isFollowedByReopening ?? true {
        try await close()
        try await open()
      } else {
        try await probe(engine)
      }
    }
  }

  /// Finds out whether the engine goes on after a change that threw.
  private mutating func probe(_ engine: EngineUnderTest) async throws {
    probes += 1
    let operation = StorageOperation.write(data("probe \(probes)"), key: key("probe-\(probes)"))
    // As it is before anything else is written, which may put right what was left behind.
    try await lookAtAll()
    do {
      try await engine.perform([operation])
      contents.acknowledge([operation])
    } catch {
      try check(error, of: "the next write")
      contents.refuse([operation], isAtomic: task.isAtomic)
    }
  }

  /// Fails unless a call may have failed like this.
  private func check(_ error: any Error, of call: String) throws {
    let cause = (error as? CallFailure)?.error ?? error
    let underlying = (cause as? CallFailure)?.error ?? cause
    guard hasFailed else { throw Violation("with nothing failing, \(call) threw \(underlying)") }
    guard !mustWork else {
      throw Violation("\(call) threw \(underlying), and nothing had failed since the engine was opened")
    }
    // It has been said that something is wrong.
    interceptor.endFault()
    if let violation = mistake(in: underlying, of: call) { throw violation }
  }

  // MARK: Looking

  private mutating func lookAtAll() async throws {
    for look in [SystemFaultStep.Look.entries, .single, .listing] { try await self.look(look) }
  }

  private mutating func look(_ look: SystemFaultStep.Look) async throws {
    guard let engine else { return }
    let hadFailed = hasFailed
    // Only all entries together show which of several states it is.
    if contents.isOpen(isReopened: isReopened), look != .entries { return }
    do {
      let found: [CacheKey: Data]
      switch look {
      case .single:
        found = try await read(contents.certain.keys.sorted(), from: engine)
      case .listing:
        let keys = try await engine.allKeys()
        let count = try await engine.keyCount()
        try expect(Set(keys) == Set(contents.certain.keys), "allKeys() had other keys than there were")
        try expect(count == keys.count, "keyCount() was \(count), but allKeys() had \(keys.count)")
        return
      case .keys:
        let entries = try await engine.readDataAndKeys(keys: contents.certain.keys.sorted())
        found = Dictionary(entries.map { ($0.key, $0.data) }) { first, _ in first }
      case .someEntries:
        let keys = contents.certain.keys.sorted()
        found = dictionary(try await engine.readEntries(keys: keys).map { ($0.key, $0.data) })
      case .entries: found = dictionary(try await engine.readAllEntries().map { ($0.key, $0.data) })
      case .scan: found = dictionary(try await engine.scan(.all, limit: nil).map { ($0.key, $0.data) })
      }
      if let violation = contents.mismatch(found, isReopened: isReopened) {
        // What failed in the middle of a read must not be taken for an answer.
        let isHidden = !hadFailed && hasFailed
        throw Violation("\(look.rawValue): \(violation.description)", rule: isHidden ? .r4 : violation.rule)
      }
    } catch let failure as CallFailure {
      try check(failure, of: failure.call)
    }
  }

  private func read(_ keys: [CacheKey], from engine: EngineUnderTest) async throws -> [CacheKey: Data] {
    var found: [CacheKey: Data] = [:]
    for key in keys { found[key] = try await engine.read(key: key) }
    return found
  }

  private func dictionary(_ entries: [(CacheKey, Data)]) -> [CacheKey: Data] {
    Dictionary(entries) { first, _ in first }
  }
}
