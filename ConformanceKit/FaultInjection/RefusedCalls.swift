import Foundation
import StockroomCore

/// Changes a store while the system refuses to change one of its files, or the names in its directories.
struct RefusedCalls: CheckTask {
  enum Refusal: Codable, Sendable {
    /// An immutable file, which cannot be changed, renamed or removed, as with `chattr +i`.
    case immutable(String)
    /// Directories in which no file can be created or removed. That does not restrict the superuser, so the process
    /// switches to another user if necessary, and must not be used for anything else.
    case readOnlyDirectories
  }

  /// A copy of a closed store with a short script.
  let place: URL
  let refusal: Refusal
  let isAtomic: Bool
  let hasTransactions: Bool

  init(_ context: CheckContext, place: URL, refusal: Refusal) {
    (self.place, self.refusal) = (place, refusal)
    isAtomic = context.capabilities.contains(.atomicBatches)
    hasTransactions = context.capabilities.contains(.transactions)
  }

  private var when: String {
    switch refusal {
    case .immutable(let file): "while \(file) could not be changed"
    case .readOnlyDirectories: "while no file could be made or removed"
    }
  }

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    if case .readOnlyDirectories = refusal, System.isSuperuser {
      try System.becomeNobody()
      guard System.canRead(place) else {
        throw Skip(reason: "Only the superuser can enter the working directory of the checks.")
      }
    }
    var contents = StoreScript.short.contents()
    var engine = EngineUnderTest(try await makeEngine(place))
    try set(true)
    defer { try? set(false) }
    for step in RefusedStep.allCases where step != .transaction || hasTransactions {
      try note("\(step) \(when)")
      try await take(step, on: engine, &contents)
    }
    try set(false)

    let later = "after the time in which \(when.dropFirst("while ".count))"
    try note("using the engine \(later)")
    try await expect(contents, in: engine, later)
    for entry in entries(keys(3, prefix: "later-")) {
      try await engine.write(entry.data, key: entry.key)
      contents[entry.key] = entry.data
    }
    try await expect(contents, in: engine, "\(later), after writing")
    try await engine.close()
    engine.release()
    engine = EngineUnderTest(try await makeEngine(place))
    try await expect(contents, in: engine, "\(later), after reopening")
    try await engine.close()
    engine.release()
  }

  private func set(_ isInTheWay: Bool) throws {
    switch refusal {
    case .immutable(let file):
      let path = place.appending(path: file)
      // The engine may no longer need the file once it is open. And if an immutable file is mapped, the system sends a
      // signal instead of an error.
      if System.mode(of: path) == nil || isInTheWay && System.isMappedForWriting(path) { return }
      try System.setImmutable(isInTheWay, path)
    case .readOnlyDirectories:
      for directory in try System.directories(in: place) {
        chmod(directory.systemPath, isInTheWay ? 0o500 : 0o700)
      }
    }
  }

  private func take(
    _ step: RefusedStep, on engine: EngineUnderTest, _ contents: inout [CacheKey: Data]
  ) async throws {
    var after = contents
    for operation in step.operations { operation.apply(to: &after) }
    let before = try await engine.readAllEntries()
    do {
      try await step.perform(on: engine)
      contents = after
    } catch let failure as CallFailure {
      // If the check runs in this process, the failure is wrapped in another one.
      guard let error = ((failure.error as? CallFailure) ?? failure).error as? StorageError,
        ![.corrupted, .closed, .invalidKey, .unsupported].contains(error.code)
      else { throw Violation("\(when), \(failure), whose code does not fit the cause") }
      // A batch that is not atomic may have been done in part.
      if !isAtomic, step != .transaction {
        for entry in try await engine.readAllDataAndKeys() where entry.data == after[entry.key] {
          contents[entry.key] = entry.data
        }
        let stored = Set(try await engine.allKeys())
        for key in contents.keys where after[key] == nil && !stored.contains(key) { contents[key] = nil }
      } else {
        try expectUntouched(try await engine.readAllEntries(), since: before, "after \(step) \(when)")
      }
    }
    try await expect(contents, in: engine, "after \(step) \(when)")
  }

  private func expect(_ contents: [CacheKey: Data], in engine: EngineUnderTest, _ when: String) async throws {
    let stored = Dictionary(try await engine.readAllDataAndKeys().map { ($0.key, $0.data) }) { first, _ in
      first
    }
    for key in Set(contents.keys).union(stored.keys).sorted() where stored[key] != contents[key] {
      throw Violation(
        "\(when), \(key) had \(describe(stored[key] as Any)) instead of \(describe(contents[key] as Any))")
    }
    for (key, value) in contents {
      try ConformanceKit.expect(try await engine.read(key: key), is: value, "\(when), read(key:) of \(key)")
    }
  }
}

/// The attempted changes, the most destructive last.
private enum RefusedStep: String, CaseIterable, CustomStringConvertible {
  case write, overwrite, batch, imported, applied, transaction, removal, removals, removingAll

  /// A clause after "during".
  var description: String {
    switch self {
    case .write: "write(_:key:)"
    case .overwrite: "an overwrite"
    case .batch: "write(_:) of every key"
    case .imported: "writeEntries(_:)"
    case .applied: "apply(_:)"
    case .transaction: "withTransaction(_:)"
    case .removal: "remove(key:)"
    case .removals: "remove(keys:) of every key"
    case .removingAll: "removeAllData()"
    }
  }

  var operations: [StorageOperation] {
    let all = keys(40)
    return switch self {
    case .write: [.write(noise(2_000, seed: 51), key: longKey("new"))]
    case .overwrite: [.write(noise(3_000, seed: 52), key: all[7])]
    case .batch:
      (all + keys(4, prefix: "new-")).enumerated().map {
        .write(noise(100 + $0.offset, seed: 53), key: $0.element)
      }
    case .imported:
      all[10..<20].enumerated().map { .write(noise(120 + $0.offset, seed: 58), key: $0.element) }
        + [.write(noise(50, seed: 59), key: key("imported"))]
    case .applied:
      [.write(noise(90, seed: 54), key: key("applied"))] + all.prefix(20).map { .remove(key: $0) }
        + [.write(noise(80, seed: 55), key: all[30])]
    case .transaction:
      [.write(noise(70, seed: 56), key: key("within"))] + all[20..<26].map { .remove(key: $0) }
        + [.write(noise(60, seed: 57), key: all[31])]
    case .removal: [.remove(key: all[33])]
    case .removals: all.map { .remove(key: $0) }
    case .removingAll: [.removeAll]
    }
  }

  private var method: ChangeMethod {
    switch self {
    case .write, .overwrite: .write
    case .batch: .writeMany
    case .imported: .writeEntries
    case .applied: .apply
    case .transaction: .transaction
    case .removal: .remove
    case .removals: .removeMany
    case .removingAll: .removeAll
    }
  }

  func perform(on engine: EngineUnderTest) async throws { try await method.perform(operations, in: engine) }
}
