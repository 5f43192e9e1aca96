#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A store that was filled and closed. Checks corrupt copies of it.
struct ClosedStore {
  let context: CheckContext
  let directory: URL
  let entries: [(key: CacheKey, data: Data)]
  /// The engine's files, relative to the directory.
  let files: [String]
  /// The files after an earlier session; empty for a store with a single session.
  let olderFiles: [String: Data]
  /// The sizes that each file had after the steps of the last session.
  let sizesOfFiles: [String: Set<Int>]

  /// Fills an engine with small and large values, one by one and in a batch, and closes it. Skips the check if the
  /// engine leaves no file.
  ///
  /// - Parameter script: The sessions of the store. It is closed after each.
  init(in context: CheckContext, at directory: URL? = nil, script: StoreScript = .short) async throws {
    self.context = context
    self.directory = directory ?? context.place
    var olderFiles: [String: Data] = [:]
    var sizesOfFiles: [String: Set<Int>] = [:]
    for (number, session) in script.sessions.enumerated() {
      let engine = try await context.open(self.directory)
      for step in session {
        try await step.perform(on: engine)
        if number < script.sessions.count - 1 { continue }
        for (file, size) in System.sizesOfFiles(in: self.directory) {
          sizesOfFiles[file, default: []].insert(size)
        }
      }
      try await context.close(engine)
      if number == script.olderSession {
        olderFiles = try DirectoryContents(of: self.directory).files.compactMapValues { $0 }
      }
    }
    entries = script.contents().sorted { $0.key < $1.key }.map { (key: $0.key, data: $0.value) }
    (self.olderFiles, self.sizesOfFiles) = (olderFiles, sizesOfFiles)
    // An engine that keeps its entries elsewhere may not even create the directory.
    guard FileManager.default.fileExists(atPath: self.directory.systemPath) else { throw Skip.noFiles }
    files = try DirectoryContents(of: self.directory).files.keys.filter { [directory = self.directory] in
      System.leadsToFile(directory.appending(path: $0))
    }.sorted()
    if files.isEmpty { throw Skip.noFiles }
  }

  /// A new path next to the store.
  func newDirectory() -> URL {
    context.root.appending(path: "store-\(UUID().uuidString)", directoryHint: .isDirectory)
  }

  /// A copy of the store, modified by `change`.
  func copy(_ change: (URL) throws -> Void) throws -> URL {
    let copy = newDirectory()
    try System.copy(directory, to: copy)
    try change(copy)
    return copy
  }

  /// The files that are necessary to read all entries.
  func filesThatMatter() async throws -> [String] {
    var files: [String] = []
    for file in self.files {
      let copy = try copy { try FileManager.default.removeItem(at: $0.appending(path: file)) }
      if !(await isComplete(copy)) { files.append(file) }
    }
    return files
  }

  private func isComplete(_ directory: URL) async -> Bool {
    do {
      let engine = try await context.open(directory)
      var isComplete = true
      for entry in entries where try await engine.read(key: entry.key) != entry.data { isComplete = false }
      try await context.close(engine)
      return isComplete
    } catch {
      return false
    }
  }
}

/// The changes that are made to a store before it is corrupted or opened under a fault. They are the same in every
/// process, so that a worker knows the expected contents.
enum StoreScript: String, Codable, Sendable {
  /// One session of writes.
  case short
  /// Three sessions, with overwrites, removals and values of many pages.
  case long
  /// A session with thousands of writes and removals of a few keys, and a short one.
  case lived
  /// A session with one batch of a thousand entries, so that an index needs more than one page.
  case many

  enum Step: Sendable {
    case write(CacheKey, Data)
    case batch([(key: CacheKey, data: Data)])
    case remove(CacheKey)
    case removals([CacheKey])

    func perform(on engine: EngineUnderTest) async throws {
      switch self {
      case .write(let key, let data): try await engine.write(data, key: key)
      case .batch(let entries): try await engine.write(entries)
      case .remove(let key): try await engine.remove(key: key)
      case .removals(let keys): try await engine.remove(keys: keys)
      }
    }

    /// The same steps, split into one for each key.
    var parts: [Step] {
      switch self {
      case .write, .remove: [self]
      case .batch(let entries): entries.map { .write($0.key, $0.data) }
      case .removals(let keys): keys.map { .remove($0) }
      }
    }

    func apply(to contents: inout [CacheKey: Data]) {
      switch self {
      case .write(let key, let data): contents[key] = data
      case .batch(let entries): for entry in entries { contents[entry.key] = entry.data }
      case .remove(let key): contents[key] = nil
      case .removals(let keys): for key in keys { contents[key] = nil }
      }
    }
  }

  var sessions: [[Step]] {
    switch self {
    case .short: [Self.first]
    case .long: [Self.first, Self.second, Self.third]
    case .lived: Self.life
    case .many: [[.batch(keys(1_100).enumerated().map { ($0.element, noise(100, seed: UInt64($0.offset))) })]]
    }
  }

  /// The session after which the files are copied, as an older version of the store.
  var olderSession: Int? { self == .long ? 1 : nil }

  /// The contents of the store after some or all sessions.
  func contents(after count: Int? = nil) -> [CacheKey: Data] {
    var contents: [CacheKey: Data] = [:]
    for step in sessions.prefix(count ?? sessions.count).joined() { step.apply(to: &contents) }
    return contents
  }

  /// Whether the store had these entries, of some keys, after one of its steps.
  ///
  /// - Parameter inBatches: Whether a batch is one step, instead of one for each of its keys.
  func hasHeld(_ found: [CacheKey: Data], in keys: some Collection<CacheKey>, inBatches: Bool) -> Bool {
    var contents: [CacheKey: Data] = [:]
    for step in sessions.joined().flatMap({ inBatches ? [$0] : $0.parts }) {
      step.apply(to: &contents)
      if keys.allSatisfy({ contents[$0] == found[$0] }) { return true }
    }
    return false
  }

  /// In batches, since each of thousands of single writes may be synced.
  private static let life: [[Step]] = {
    let rounds = (0..<300).map { round -> Step in
      let keys = keys(40, prefix: "life-")
      if round % 3 == 2 { return .removals((0..<10).map { keys[(round * 7 + $0) % 40] }) }
      return .batch(
        (0..<20).map { (keys[(round * 13 + $0) % 40], noise(20 + $0, seed: UInt64(round * 20 + $0))) })
    }
    return [Array(rounds.dropLast(20)), Array(rounds.suffix(20))]
  }()

  private static let first: [Step] = {
    let entries = keys(40).enumerated().map {
      (key: $0.element, data: noise($0.offset * 97 + 20, seed: UInt64($0.offset)))
    }
    return entries.prefix(30).map { .write($0.key, $0.data) }
      + [.write(longKey("long-"), noise(700, seed: 41)), .batch(Array(entries.suffix(10)))]
  }()

  private static let second: [Step] = {
    let large = zip(keys(5, prefix: "large-"), [5_000, 16_400, 40_000, 70_000, 100])
    return keys(10).enumerated().map { .write($0.element, noise(600 - $0.offset * 41, seed: 77)) }
      + keys(15).suffix(5).map { .remove($0) } + large.map { .write($0.0, noise($0.1, seed: 5)) }
  }()

  private static let third: [Step] = [
    .batch(keys(25).suffix(5).enumerated().map { ($0.element, noise(300 + $0.offset, seed: 13)) }),
    .write(keys(2, prefix: "large-")[1], noise(20_000, seed: 14)),
    .removals(Array(keys(33).suffix(3))),
    .batch(keys(6, prefix: "late-").map { ($0, noise(1_000, seed: 15)) }),
    .write(keys(1)[0], Data()),
  ]
}
