import Foundation
import StockroomCore

/// A store in which a system call fails, and its expected contents.
struct FaultedStore {
  private let place: URL
  private let isAtomic: Bool
  private let losesUnsynced: Bool
  private let interceptor: SystemCallInterceptor
  private let makeEngine: @Sendable (URL) async throws -> any StorageEngine
  private var engine: EngineUnderTest?
  private(set) var contents = SystemFaultContents()
  private var fault: SystemFault?
  private var probes = 0
  /// Whether it has been opened since the last attempted change.
  private var isReopened = false
  /// Whether no call has failed since it was opened, and none will fail any more.
  private var mustWork = false
  /// The entries before the call that fails, with their times.
  private var dated: [StorageEntry] = []
  /// The current step, as a clause.
  var stage = ""

  /// - Parameters:
  ///   - isAtomic: Whether batches are atomic.
  ///   - losesUnsynced: Whether pages whose sync failed are lost when the engine is closed.
  init(
    at place: URL, isAtomic: Bool, losesUnsynced: Bool = false, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine
  ) {
    (self.place, self.isAtomic, self.losesUnsynced) = (place, isAtomic, losesUnsynced)
    (self.interceptor, self.makeEngine) = (interceptor, makeEngine)
  }

  /// Makes a later system call fail, or none if the fault is nil.
  mutating func arm(_ fault: SystemFault?) {
    self.fault = fault
    interceptor.begin(at: place, fault: fault, losesUnsynced: losesUnsynced)
  }

  /// Makes all system calls work from now on. The engine may still report that one has failed.
  func disarm() { interceptor.endFault() }

  /// Whether the call that was to fail has occurred.
  var hasFailed: Bool { interceptor.observation.failedFile != nil }

  /// Opens the engine, and retries once, because only one system call fails.
  mutating func open() async throws {
    // A store on a disk that accepts no writes need not open.
    if hasFailed { interceptor.endFault() }
    mustWork = false
    var reasons: [String] = []
    for _ in 0..<2 {
      let hadFailed = hasFailed
      do {
        engine = EngineUnderTest(try await makeEngine(place))
        (isReopened, mustWork) = (true, hadFailed)
        return
      } catch {
        try check(error, of: "opening the engine")
        reasons.append("\(error)")
      }
    }
    throw Violation(
      "\(stage), opening the engine failed twice, although only one system call had failed: "
        + "\(reasons.joined(separator: "; "))"
    )
  }

  mutating func close() async throws {
    guard let engine else { return }
    self.engine = nil
    do {
      try await engine.close()
    } catch {
      try check(error, of: "close()")
    }
    engine.release()
    if losesUnsynced { try interceptor.loseUnsynced(in: place) }
  }

  mutating func change(_ method: ChangeMethod, _ operations: [StorageOperation]) async throws {
    guard let engine else { return }
    isReopened = false
    do {
      try await method.perform(operations, in: engine)
      contents.acknowledge(operations)
    } catch {
      try check(error, of: method.call)
      contents.refuse(operations, isAtomic: isAtomic || method == .transaction)
      // The next write, or the next opening, must resolve the refused change.
      if fault?.isFollowedByReopening ?? true {
        try await close()
        try await open()
      } else {
        try await probe(engine)
      }
    }
  }

  /// Finds out whether the engine continues to work after a change that threw.
  private mutating func probe(_ engine: EngineUnderTest) async throws {
    probes += 1
    let operation = StorageOperation.write(data("probe \(probes)"), key: key("probe-\(probes)"))
    // Reads before anything else is written, because a write may repair what the failed change left behind.
    try await readEverything()
    do {
      try await engine.perform([operation])
      contents.acknowledge([operation])
    } catch {
      try check(error, of: "the next write")
      contents.refuse([operation], isAtomic: isAtomic)
    }
  }

  /// Fails unless a call may have failed like this.
  private func check(_ error: any Error, of call: String) throws {
    let cause = (error as? CallFailure)?.error ?? error
    let underlying = (cause as? CallFailure)?.error ?? cause
    guard hasFailed else { throw Violation("with nothing failing, \(call) threw \(underlying)") }
    guard !mustWork else {
      throw Violation(
        "\(call) threw \(underlying), although no system call had failed since the engine was opened")
    }
    // The engine has reported a failure.
    interceptor.endFault()
    if let violation = mistake(in: underlying, of: call) { throw violation }
  }

  // MARK: Reading

  mutating func readEverything() async throws {
    for look in [SystemFaultStep.Look.entries, .single, .listing] { try await self.look(look) }
  }

  mutating func look(_ look: SystemFaultStep.Look) async throws {
    guard let engine else { return }
    let hadFailed = hasFailed
    // Only a read of all entries shows which of several possible states the store is in.
    if contents.isAmbiguous(isReopened: isReopened), look != .entries { return }
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
        // A read that failed midway must not return a result.
        let isHidden = !hadFailed && hasFailed
        throw Violation("\(look.rawValue): \(violation.description)", rule: isHidden ? .r4 : violation.rule)
      }
    } catch let failure as CallFailure {
      try check(failure, of: failure.call)
    }
  }

  // MARK: Times

  /// Records the times and the order of the entries.
  mutating func noteTimes() async throws {
    guard let engine else { return }
    do {
      dated = try await engine.readAllEntries()
    } catch let failure as CallFailure {
      try check(failure, of: failure.call)
    }
  }

  /// Fails unless the entries that existed before have kept their order, the times of their first writes and, if they
  /// have the same values, those of their last writes. None of them may have been removed and written again.
  ///
  /// - Parameter imported: The keys whose times a call may have replaced together with their values.
  func expectTimes(exceptOf imported: Set<CacheKey>) async throws {
    guard let engine else { return }
    let found: [StorageEntry]
    do {
      found = try await engine.readAllEntries()
    } catch let failure as CallFailure {
      return try check(failure, of: failure.call)
    }
    var places: [CacheKey: Int] = [:]
    for (place, entry) in dated.enumerated() { places[entry.key] = place }
    for entry in found {
      guard let place = places[entry.key] else { continue }
      let (before, isUnchanged) = (dated[place], entry.data == dated[place].data)
      if !isUnchanged, imported.contains(entry.key) { continue }
      let keepsTimes =
        entry.createdAt.isAbout(before.createdAt)
        && (!isUnchanged || entry.updatedAt.isAbout(before.updatedAt))
      if keepsTimes { continue }
      throw Violation(
        "\(entry.key) had the times \(describe([entry.createdAt, entry.updatedAt])) instead of "
          + "\(describe([before.createdAt, before.updatedAt])) as before, although it had "
          + (isUnchanged ? "the same value" : "only been overwritten"), rule: .w2)
    }
    for (one, other) in zip(found, found.dropFirst()) {
      guard let first = places[one.key], let second = places[other.key], first > second else { continue }
      // An engine that implements a batch as single writes cannot distinguish two of them within one tick of the clock.
      if !isAtomic, one.createdAt == other.createdAt { continue }
      throw Violation("\(one.key) was before \(other.key), and previously after it", rule: .r6)
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
