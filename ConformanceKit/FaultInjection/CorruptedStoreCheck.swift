import Foundation
import StockroomCore

/// Opens a corrupted store, reads it in every way, writes once and closes, by rule F2.
///
/// Wherever the corruption is, rule F2 requires of every engine that it neither traps nor hangs, which the parent
/// process detects; that it throws no error except that the store is corrupted; and that a store with entries never
/// appears empty. An engine without `detectsCorruption` may return a changed value or key. One that claims it must
/// return what was written or throw.
struct CorruptedStoreCheck: CheckTask {
  let directory: URL
  let script: StoreScript
  var what: String
  /// The names of the allowed error codes.
  let codes: [String]
  /// Whether every result must be right.
  var mustBeRight: Bool
  /// Whether all entries must be unchanged unless some call throws.
  var mustBeWhole: Bool
  /// Whether the contents after an earlier batch also count as complete. A crash of the machine may lose everything
  /// that is not on the disk (rule W6), and a file that was truncated later looks the same.
  var mayLackLastBatches = false
  /// Whether verify() is called first. If it succeeds, no later read may report corruption.
  let isVerified: Bool
  /// Whether entries may have earlier values.
  let mayBeStale: Bool
  let mayBeEmpty: Bool
  /// The original of the corrupted file, and the path of the file. If opening throws, the original is restored. Then
  /// all entries must be there: an engine that refuses to open a store must not damage it.
  let remedy: Remedy?

  struct Remedy: Codable, Sendable {
    let original: URL
    let corrupted: URL
  }

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try note("opening \(what)")
    let engine: EngineUnderTest
    do {
      engine = EngineUnderTest(try await makeEngine(directory))
    } catch {
      try classify(error, of: "opening the engine")
      try await openAgain("was refused", makeEngine: makeEngine, note: note)
      if let remedy { try await checkRestored(remedy, makeEngine: makeEngine, note: note) }
      return
    }
    let look = CorruptedStoreReader(task: self, engine: engine, note: note)
    if isVerified {
      try await look.verify()
    } else {
      try await look.read()
    }
    try await look.write()
    try await look.close()
    engine.release()
    try await openAgain("had been closed", makeEngine: makeEngine, note: note)
  }

  /// Opens the store again, after opening has thrown or the engine was closed. The store must not appear empty unless a
  /// call throws.
  private func openAgain(
    _ when: String, makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    var task = self
    task.what += ", when the store was reopened after it \(when)"
    // The engine may have written something in between.
    (task.mustBeRight, task.mustBeWhole) = (false, false)
    try note("opening \(task.what)")
    let engine: EngineUnderTest
    do {
      engine = EngineUnderTest(try await makeEngine(directory))
    } catch {
      return try task.classify(error, of: "opening the engine")
    }
    let look = CorruptedStoreReader(task: task, engine: engine, note: note)
    try await look.readSome()
    try await look.close()
    engine.release()
  }

  /// Fails unless the error is an allowed report of corruption.
  fileprivate func classify(_ error: any Error, of call: String) throws {
    let error = (error as? CallFailure)?.error ?? error
    if let error = error as? StorageError, codes.contains(error.code.name) { return }
    throw Violation(
      "\(what), \(call) threw \(shortened(String(describing: error))), which is not StorageError with code corrupted"
    )
  }

  private func checkRestored(
    _ remedy: Remedy, makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    guard System.mode(of: directory) != nil else {
      throw Violation("\(what), opening threw, and afterwards the whole directory was gone")
    }
    try? FileManager.default.removeItem(at: remedy.corrupted)
    try FileManager.default.copyItem(at: remedy.original, to: remedy.corrupted)
    let restored = CorruptedStoreCheck(
      directory: directory, script: script,
      what: "\(what), after opening had thrown and the file had been restored", codes: [],
      mustBeRight: true, mustBeWhole: true, isVerified: false, mayBeStale: false, mayBeEmpty: false,
      remedy: nil)
    try await restored.check(makeEngine: makeEngine, note: note)
  }
}

/// One run of checks of a corrupted store.
private final class CorruptedStoreReader {
  let task: CorruptedStoreCheck
  let engine: EngineUnderTest
  let note: @Sendable (String) throws -> Void
  private let expected: [CacheKey: Data]
  /// The complete contents.
  private var whole: [CacheKey: Data]
  /// Earlier contents of the store, if they count as right.
  private let earlier: [[CacheKey: Data]]
  private static let keyWritten = key("written after the corruption")
  /// The number of values that were returned, except those written after the corruption.
  private var found = 0
  private var isReported = false
  /// The first missing or wrong entry.
  private var loss: Violation?

  init(task: CorruptedStoreCheck, engine: EngineUnderTest, note: @escaping @Sendable (String) throws -> Void)
  {
    (self.task, self.engine, self.note) = (task, engine, note)
    expected = task.script.contents()
    whole = expected
    earlier =
      task.mayBeStale ? (0..<task.script.sessions.count).map { task.script.contents(after: $0) } : []
  }

  /// Calls verify(), and then reads everything.
  func verify() async throws {
    try await attempt("verify()") { try await engine.verify() }
    let isFound = isReported
    try await read()
    if isReported && !isFound {
      throw Violation("\(task.what), verify() did not throw, but a later read threw corrupted")
    }
  }

  func read() async throws {
    let keys = expected.keys.sorted()
    let engine = engine
    var values: [(CacheKey, Data?)] = []
    // A few at a time, because an engine may scan all entries before each call throws.
    for start in stride(from: 0, to: keys.count, by: 32) {
      try await attempt("read(key:)") {
        for key in keys[start..<min(start + 32, keys.count)] {
          do {
            values.append((key, try await engine.read(key: key)))
          } catch let failure as CallFailure {
            try task.classify(failure, of: "read(key:) of \(key)")
            isReported = true
          }
        }
      }
    }
    if task.mayLackLastBatches {
      let held = Dictionary(values.compactMap { key, value in value.map { (key, $0) } }) { first, _ in first }
      let inBatches = engine.capabilities.contains(.atomicBatches)
      if task.script.hasHeld(held, in: expected.keys, inBatches: inBatches) { whole = held }
    }
    for (key, value) in values {
      if value != nil { found += 1 }
      if !isRight(value, of: key) { throw wrong("read(key:) of \(key)", value) }
      noteLoss(of: key, value, "read(key:)")
    }
    try await readMany(keys)
    try await readAll()
    if let loss, task.mustBeWhole && !isReported { throw loss }
    try expectSomething()
  }

  /// Reads enough to see whether any entries are there.
  func readSome() async throws {
    let engine = engine
    for key in expected.keys.sorted().prefix(4) {
      try await attempt("read(key:) of \(key)") { found += try await engine.read(key: key) == nil ? 0 : 1 }
    }
    try await expectRight("readAllDataAndKeys()") { try await engine.readAllDataAndKeys() }
    try expectSomething()
  }

  private func expectSomething() throws {
    if found > 0 || isReported || task.mayBeEmpty { return }
    throw Violation("\(task.what), the store was empty and no call threw")
  }

  private func readMany(_ keys: [CacheKey]) async throws {
    let engine = engine
    try await expectRight("readDataAndKeys(keys:)") { try await engine.readDataAndKeys(keys: keys) }
    try await expectRight("readEntries(keys:)") {
      try await engine.readEntries(keys: keys).map { ($0.key, $0.data) }
    }
    let values = keys.map { expected[$0] ?? Data() }
    try await expectAnswer(values, "read(keys:)") { try await engine.read(keys: keys) }
    try await expectAnswer(keys, "keysExist(_:)") { try await engine.keysExist(keys) }
    try await expectAnswer(true, "keyExists(_:)") { try await engine.keyExists(keys[0]) }
    try await expectAnswer(true, "createdAt(key:)", ", or whether it returned a time,") {
      try await engine.createdAt(key: keys[1]) != nil
    }
    try await expectAnswer(true, "updatedAt(key:)", ", or whether it returned a time,") {
      try await engine.updatedAt(key: keys[1]) != nil
    }
    guard engine.capabilities.contains(.transactions) else { return }
    try await expectRight("scan(.all) in a body") {
      try await engine.withTransaction { try $0.scan(.all, limit: nil) }
    }
    try await expectAnswer(values, "read(keys:) in a body") {
      try await engine.withTransaction { try $0.read(keys: keys) }
    }
  }

  private func readAll() async throws {
    let engine = engine
    try await expectRight("readAllDataAndKeys()") { try await engine.readAllDataAndKeys() }
    try await expectRight("scan(.all)") { try await engine.scan(.all, limit: nil) }
    try await expectRight("readAllEntries()") { try await engine.readAllEntries().map { ($0.key, $0.data) } }
    let values = expected.values.sorted { $0.lexicographicallyPrecedes($1) }
    try await expectAnswer(values, "readAllData()", ", sorted,") {
      try await engine.readAllData().sorted { $0.lexicographicallyPrecedes($1) }
    }
    try await expectAnswer(expected.count, "keyCount()") { try await engine.keyCount() }
    try await expectAnswer(expected.keys.sorted(), "allKeys()", ", sorted,") {
      try await engine.allKeys().sorted()
    }
  }

  /// Makes a call that may throw because of the corruption. If it returns, and every result must be right, it must
  /// return this result.
  private func expectAnswer<Answer: Equatable>(
    _ wanted: Answer, _ call: String, _ part: String = "", _ answer: () async throws -> Answer
  ) async throws {
    var given: Answer?
    try await attempt(call) { given = try await answer() }
    guard let given, task.mustBeRight, !task.mayBeStale, given != wanted else { return }
    throw Violation("\(task.what), \(call)\(part) was \(describe(given)) instead of \(describe(wanted))")
  }

  func write() async throws {
    let (engine, value, key) = (engine, data("after the corruption"), Self.keyWritten)
    var (isWritten, read) = (false, Data?.none)
    try await attempt("write(_:key:)") {
      try await engine.write(value, key: key)
      isWritten = true
    }
    try await attempt("read(key:) of what was just written") {
      read = try await engine.read(key: key)
      if task.mustBeRight && isWritten && read != value {
        throw wrong("read(key:) of what was just written", read)
      }
    }
  }

  func close() async throws {
    let engine = engine
    // Closing may report the corruption as well.
    try await attempt("close()") { try await engine.close() }
  }

  /// Makes a call that may throw because of the corruption.
  private func attempt(_ call: String, _ body: () async throws -> Void) async throws {
    try note("\(call) \(task.what)")
    do {
      try await body()
    } catch let failure as CallFailure {
      try task.classify(failure, of: call)
      isReported = true
    }
  }

  private func expectRight(
    _ call: String, _ body: () async throws -> [(key: CacheKey, data: Data)]
  ) async throws {
    var given: [(key: CacheKey, data: Data)]?
    try await attempt(call) { given = try await body() }
    guard let given else { return }
    found += given.count { $0.key != Self.keyWritten }
    let values = Dictionary(given.map { ($0.key, $0.data) }) { first, _ in first }
    for key in expected.keys.sorted() { noteLoss(of: key, values[key], call) }
    guard task.mustBeRight else { return }
    for entry in given where !isRight(entry.data, of: entry.key) {
      throw wrong("\(call), of \(entry.key),", entry.data)
    }
    if !task.mayBeStale && given.count != expected.count {
      throw Violation("\(task.what), \(call) returned \(given.count) entries instead of \(expected.count)")
    }
  }

  private func noteLoss(of key: CacheKey, _ value: Data?, _ call: String) {
    guard loss == nil, value != whole[key] else { return }
    loss = Violation(
      "\(task.what), \(call) returned \(describe(value as Any)) for \(key) instead of "
        + "\(describe(whole[key] as Any)), and no call threw")
  }

  private func isRight(_ value: Data?, of key: CacheKey) -> Bool {
    !task.mustBeRight || value == expected[key] || earlier.contains { $0[key] == value }
  }

  private func wrong(_ call: String, _ value: Data?) -> Violation {
    Violation("\(task.what), \(call) returned \(describe(value as Any)), which was never written")
  }
}
