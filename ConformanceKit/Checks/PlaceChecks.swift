#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A place that is deleted, moved or replaced under an open engine: rule C6.

extension CheckDefinition {
  @CheckList static var placeChecks: [CheckDefinition] {
    for change in PlaceChange.allCases {
      Check(
        .c6, "place.\(change.rawValue)",
        "an engine whose place is \(change.participle) throws io or agrees with a newly opened engine, and "
          + "does not harm it",
        needs: .persistent
      ) { context in try await checkPlace(context, change, .here(nil)) }
      Check(
        .c6, "place.\(change.rawValue)-for-another-process",
        "an engine whose place is \(change.participle), and opened by another process, throws io or agrees "
          + "with that process, and does not harm it", needs: .persistent, needsWorker: true
      ) { context in
        try await context.withWorker { try await checkPlace(context, change, .worker($0, context.place)) }
      }
    }
  }
}

/// The engine that is opened on the place after the change.
private enum LaterEngine {
  case here(EngineUnderTest?)
  case worker(WorkerProcess, URL)

  mutating func open(_ context: CheckContext) async throws {
    switch self {
    case .here: self = .here(try await context.open())
    case .worker(let worker, let place): try await worker.perform(CallEngine(.open, at: place))
    }
  }

  func write(_ entries: [(key: CacheKey, data: Data)]) async throws {
    switch self {
    case .here(let engine): try await engine?.write(entries)
    case .worker(let worker, let place):
      let sent = entries.map { SharedWork.Entry(key: $0.key.value, data: $0.data) }
      try await worker.perform(CallEngine(.write(sent), at: place))
    }
  }

  func contents() async throws -> [CacheKey: Data] {
    let entries =
      switch self {
      case .here(let engine): try await engine?.readAllEntries() ?? []
      case .worker(let worker, let place):
        try await worker.perform(CallEngine(.read, at: place)).flatMap { $0 }.map(\.entry)
      }
    return Dictionary(entries.map { ($0.key, $0.data) }) { first, _ in first }
  }

  func close(_ context: CheckContext) async throws {
    switch self {
    case .here(let engine): if let engine { try await context.close(engine) }
    case .worker(let worker, let place): try await worker.perform(CallEngine(.close, at: place))
    }
  }
}

private func checkPlace(_ context: CheckContext, _ change: PlaceChange, _ newcomer: LaterEngine) async throws
{
  var newcomer = newcomer
  var there: [CacheKey: Data] = [:]
  let (other, aside) = (context.root.appending(path: "other"), context.root.appending(path: "aside"))
  if change.bringsEntries {
    let engine = try await context.open(other)
    try await engine.write(entries(keys(5, prefix: "other-")))
    try await context.close(engine)
    for entry in entries(keys(5, prefix: "other-")) { there[entry.key] = entry.data }
  }
  let engine = try await context.open()
  let old = entries(keys(8, prefix: "old-"))
  try await engine.write(old)
  // After this read, the engine has opened or loaded everything that it keeps open or in memory.
  _ = try await engine.readAllDataAndKeys()
  try await expectStored(old, in: engine)

  try change.perform(on: context.place, replacement: other, aside: aside)
  var left = EarlierEngine(engine: engine, change: change, old: old.map(\.key))
  try await left.use(&there, keys(4, prefix: "alone-"))
  do {
    try await newcomer.open(context)
  } catch  where isLocked(error) {
    // An engine that follows the move may keep the place locked for as long as it is open.
    try await left.close(context)
    try await newcomer.open(context)
  }
  try await expect(newcomer, has: there, "reopened")
  let mine = entries(keys(4, prefix: "mine-"))
  try await newcomer.write(mine)
  for entry in mine { there[entry.key] = entry.data }
  try await left.use(&there, keys(4, prefix: "beside-"))
  try await left.remove(mine.map(\.key), &there)
  try await expect(newcomer, has: there, "reopened, and used beside the old one")
  try await left.removeAll(&there)
  try await expect(newcomer, has: there, "reopened, beside the old one that was to remove everything")
  try await left.close(context)
  let later = entries(keys(2, prefix: "later-"))
  try await newcomer.write(later)
  for entry in later { there[entry.key] = entry.data }
  try await newcomer.close(context)
  try await newcomer.open(context)
  try await expect(newcomer, has: there, "closed and opened once more, after the old one had been closed")
  try await newcomer.close(context)
  if !change.keepsOldPlace { return }
  let moved = try await context.open(aside)
  try await expectStored(old, in: moved)
  try await context.close(moved)
}

private func isLocked(_ error: any Error) -> Bool {
  (error as? WorkerError)?.code == StorageError.Code.locked.name
    || ((error as? CallFailure)?.error as? StorageError)?.code == .locked
}

private func expect(_ newcomer: LaterEngine, has there: [CacheKey: Data], _ what: String) async throws {
  let found = try await newcomer.contents()
  for key in Set(found.keys).union(there.keys).sorted() where found[key] != there[key] {
    throw Violation(
      "an engine \(what), returned \(describe(found[key] as Any)) for \(key) instead of "
        + "\(describe(there[key] as Any))"
    )
  }
}

/// An engine that was open when its place was changed.
private struct EarlierEngine {
  let engine: EngineUnderTest
  let change: PlaceChange
  let old: [CacheKey]
  private var isClosed = false

  init(engine: EngineUnderTest, change: PlaceChange, old: [CacheKey]) {
    (self.engine, self.change, self.old) = (engine, change, old)
  }

  /// Reads, writes an entry in each way, and reads again.
  ///
  /// - Parameter there: The contents that a newly opened engine must return. Acknowledged writes are added.
  func use(_ there: inout [CacheKey: Data], _ new: [CacheKey]) async throws {
    if isClosed { return }
    try await read(there)
    if try await isDone({ try await $0.write(data("v"), key: new[0]) }) {
      there[new[0]] = data("v")
    }
    if try await isDone({ try await $0.apply([.write(data("w"), key: new[1])]) }) {
      there[new[1]] = data("w")
    }
    if try await isDone({ try await $0.write([(key: new[2], data: data("x"))]) }) {
      there[new[2]] = data("x")
    }
    let isTransactional = engine.capabilities.contains(.transactions)
    if isTransactional,
      try await isDone({ engine in try await engine.withTransaction { try $0.write(data("y"), key: new[3]) } }
      )
    {
      there[new[3]] = data("y")
    }
    try await read(there)
  }

  /// Removes the first key on its own, and the second with the method for many.
  func remove(_ keys: [CacheKey], _ there: inout [CacheKey: Data]) async throws {
    if isClosed { return }
    if try await isDone({ try await $0.remove(key: keys[0]) }) { there[keys[0]] = nil }
    if try await isDone({ try await $0.remove(keys: [keys[1]]) }) { there[keys[1]] = nil }
  }

  func removeAll(_ there: inout [CacheKey: Data]) async throws {
    if isClosed { return }
    if try await isDone({ try await $0.removeAllData() }) { there = [:] }
  }

  mutating func close(_ context: CheckContext) async throws {
    if isClosed { return }
    isClosed = true
    _ = try await isDone { try await $0.close() }
    engine.release()
  }

  /// Fails if a read returns anything other than these contents.
  private func read(_ there: [CacheKey: Data]) async throws {
    for key in old.prefix(2) + there.keys.sorted() {
      _ = try await isDone {
        try expect(try await $0.read(key: key), is: there[key], "\(when), read(key:) of \(key)")
      }
    }
    func expectThere(_ entries: [(key: CacheKey, data: Data)], _ call: String) throws {
      try expect(
        entries.map(\.key).sorted(), is: there.keys.sorted(), "\(when), the keys of \(call), sorted,")
      for entry in entries { try expect(entry.data, is: there[entry.key] ?? Data(), "\(when), \(call)") }
    }
    try await readSingly(there)
    let asked = Array(old.prefix(2)) + there.keys.sorted()
    _ = try await isDone {
      try expectThere(try await $0.readDataAndKeys(keys: asked), "readDataAndKeys(keys:)")
    }
    _ = try await isDone {
      try expectThere(try await $0.readEntries(keys: asked).map { ($0.key, $0.data) }, "readEntries(keys:)")
    }
    _ = try await isDone {
      let values = try await $0.read(keys: asked)
      try expect(values.count, is: there.count, "\(when), the number of values of read(keys:)")
    }
    _ = try await isDone {
      try expect(
        try await $0.keysExist(asked).sorted(), is: there.keys.sorted(), "\(when), keysExist(_:), sorted,")
    }
    _ = try await isDone {
      try expectThere(try await $0.readAllEntries().map { ($0.key, $0.data) }, "readAllEntries()")
    }
    _ = try await isDone {
      try expect(try await $0.readAllData().count, is: there.count, "\(when), the number of readAllData()")
    }
    if engine.capabilities.contains(.transactions) {
      _ = try await isDone { engine in
        let keys = try await engine.withTransaction { try $0.allKeys() }
        try expect(keys.sorted(), is: there.keys.sorted(), "\(when), allKeys() of a transaction, sorted,")
      }
    }
    _ = try await isDone {
      try expectThere(try await $0.readAllDataAndKeys(), "readAllDataAndKeys()")
    }
    _ = try await isDone { try expectThere(try await $0.scan(.all, limit: nil), "scan(.all)") }
    _ = try await isDone {
      try expect(try await $0.allKeys().sorted(), is: there.keys.sorted(), "\(when), allKeys(), sorted,")
    }
    _ = try await isDone {
      try expect(try await $0.keyCount(), is: there.count, "\(when), keyCount()")
    }
  }

  /// Fails if a read of a single entry returns anything other than these contents.
  private func readSingly(_ there: [CacheKey: Data]) async throws {
    for key in old.prefix(2) + there.keys.sorted() {
      let isThere = there[key] != nil
      _ = try await isDone {
        try expect(try await $0.keyExists(key), is: isThere, "\(when), keyExists(_:) of \(key)")
      }
      _ = try await isDone {
        let date = try await $0.createdAt(key: key)
        try expect(date != nil, is: isThere, "\(when), whether there was a createdAt of \(key)")
      }
      _ = try await isDone {
        let date = try await $0.updatedAt(key: key)
        try expect(date != nil, is: isThere, "\(when), whether there was an updatedAt of \(key)")
      }
    }
  }

  private var when: String { "after its place had been \(change.participle)" }

  private func isDone(_ body: (EngineUnderTest) async throws -> Void) async throws -> Bool {
    try await returnsOrThrowsIO(engine, when, body)
  }
}

/// Whether the call returned. Fails if it threw anything but `io`.
func returnsOrThrowsIO(
  _ engine: EngineUnderTest, _ when: String, _ body: (EngineUnderTest) async throws -> Void
) async throws -> Bool {
  do {
    try await body(engine)
    return true
  } catch let failure as CallFailure {
    guard (failure.error as? StorageError)?.code == .io else {
      throw Violation("\(when), \(failure), which is not StorageError with code io")
    }
    return false
  }
}
