import Foundation
import StockroomCore

/// A correct engine that keeps everything in one file, for one process or for several. It reads the file in every call
/// and replaces it with every write. Its faults appear beside other engines, or with unusual paths.
package final class SharedPlaceFaultEngine: ApplyingEngine {
  /// A deliberate fault, or an unusual behavior.
  package enum Fault: String, CaseIterable, Sendable {
    // Caches of entries that others change
    case remembersAbsence, remembersAbsenceForAMoment, remembersValues, remembersCount, remembersKeys,
      remembersTimes
    case comparesSeconds, comparesSizes, remembersByName, countsApplies, mapsTooLittle, losesOldLogs
    case trustsItsFirstDirectory, staysOnCompactedFiles, remembersPages
    case comparesNewestTimes, comparesTimesOfEntries
    // What others see while it writes
    case savesLargeValuesInSteps, savesNewValuesBeside
    // Times
    case datesAfterItsOwnLast
    // Effects on others when one is closed
    case abortsCallsOfOthers
    // Openings
    case initializesTwice, refusesNewDirectories
    // Locks
    case locksForTheProcess, locksBesideItsPlace, breaksOldLocks, breaksLocksOfYesterday, leavesLockFiles,
      locksAllPlaces, callsLocksIO, callsLongLocksIO, unlinksItsLock
    case locksWhenItWrites
    case letsLocksBeInherited, letsFilesBeInherited, letsCallLocksBeInherited
    // Paths
    case decodesPaths, encodesPaths, cutsPathsAtFragments, cutsLongPaths, composesPaths, lowercasesPaths
    case trimsPaths, anchorsRelativePaths, comparesPathsAsText
    // No faults
    case givesUpWaiting, waitsToOpen
  }

  package let capabilities: EngineCapabilities
  /// How often an engine was closed, by place, for a fault that then closes a shared resource.
  private static let closings = MutexProtected<[String: Int]>([:])
  private let path: String
  private let state: MutexProtected<State>
  private let fault: Fault?
  private let transactions = DedicatedThread()

  struct State: ~Copyable {
    var place: SharedPlaceFile?
    /// The entries that were read last, and the state of the file at that time.
    var cached: (mark: SharedPlaceFile.Mark, entries: [String: SharedPlaceEntry])?
    /// The directory that it was opened on.
    var directory: UInt64 = 0
    var absent: Set<String> = []
    var lastAbsences: [String: ContinuousClock.Instant] = [:]
    var values: [String: Data] = [:]
    /// The entries that were read last by their keys, for a fault that compares their times.
    var dated: [String: SharedPlaceEntry] = [:]
    var times: [String: SharedPlaceEntry] = [:]
    /// When this engine last changed something, in microseconds.
    var lastChange = 0
    var count: Int?
    var keys: [String]?
    /// The results of scans with a limit or a prefix.
    var pages: [String: [(key: CacheKey, data: Data)]] = [:]
    /// The maximum size of a file that is read completely.
    var mapSize = 256 << 10

    mutating func forget() {
      (absent, values, times, count, keys) = ([], [:], [:], nil, nil)
      (lastAbsences, pages) = ([:], [:])
    }
  }

  package static func promises(isShared: Bool, fault: Fault? = nil) -> EngineCapabilities {
    if !isShared { return [.persistent, .atomicBatches] }
    let promises: EngineCapabilities = [.persistent, .atomicBatches, .multiProcess]
    // Its fault appears in calls that take long.
    return fault == .breaksLocksOfYesterday ? promises.union(.transactions) : promises
  }

  package init(directory: URL, isShared: Bool = false, fault: Fault? = nil) throws {
    (self.fault, path) = (fault, directory.path)
    capabilities = Self.promises(isShared: isShared, fault: fault)
    var state = State()
    state.place = try SharedPlaceFile(in: directory, isShared: isShared, fault: fault)
    state.directory = state.place?.mark.directory ?? 0
    self.state = MutexProtected(state)
  }

  deinit { transactions.stop() }

  private func perform<Result: Sendable>(
    _ body: (inout State, inout [String: SharedPlaceEntry]) throws -> Result
  ) throws -> Result {
    try state.withLock { state in
      guard state.place != nil else { throw StorageError(.closed, "The engine has been closed.") }
      try state.place?.lock()
      defer { state.place?.unlock() }
      var entries = try load(&state)
      return try body(&state, &entries)
    }
  }

  private func load(_ state: inout State) throws -> [String: SharedPlaceEntry] {
    let mark = state.place?.mark
    if let cached = state.cached, let mark {
      if fault == .comparesSeconds, cached.mark.seconds == mark.seconds { return cached.entries }
      if fault == .comparesSizes, cached.mark.size == mark.size { return cached.entries }
      if fault == .countsApplies, cached.mark.changes == mark.changes { return cached.entries }
      if fault == .mapsTooLittle, mark.size > state.mapSize { return cached.entries }
      if fault == .losesOldLogs, mark.changes > cached.mark.changes + 200 { return cached.entries }
      // There is a new file after every 16 MiB.
      if fault == .staysOnCompactedFiles, cached.mark.changes >> 14 != mark.changes >> 14 {
        return cached.entries
      }
      if fault == .trustsItsFirstDirectory, mark.directory == state.directory { return cached.entries }
    }
    let entries = try state.place?.load() ?? [:]
    if fault == .comparesNewestTimes, let known = state.cached?.entries, known.count == entries.count,
      known.values.map(\.updated).max() == entries.values.map(\.updated).max()
    {
      return known
    }
    if let mark { state.cached = (mark, entries) }
    return entries
  }

  package func apply(_ operations: [StorageOperation]) async throws { try change(operations) }

  package func write(_ data: Data, key: CacheKey) async throws {
    if fault == .abortsCallsOfOthers { try await waitAMoment() }
    try change([.write(data, key: key)], isCounted: fault != .countsApplies)
  }

  package func removeAllData() async throws { try change([.removeAll], isCounted: fault != .countsApplies) }

  package func writeEntries(_ imported: [StorageEntry]) async throws {
    try imported.map(\.key).validate()
    if imported.isEmpty { return }
    try perform { state, entries in
      entries.apply(imported.map { .write($0.data, key: $0.key) })
      if fault == .comparesNewestTimes || fault == .comparesTimesOfEntries {
        for entry in imported { entries[entry.key.value]?.date(like: entry) }
      }
      try finish(&state, entries, writing: imported.reduce(0) { $0 + $1.data.count })
    }
  }

  private func change(_ operations: [StorageOperation], isCounted: Bool = true) throws {
    try operations.validate()
    if operations.isEmpty { return }
    try perform { state, entries in
      entries.apply(operations)
      if fault == .datesAfterItsOwnLast { entries.date(operations, after: &state.lastChange) }
      let size = operations.reduce(0) { $0 + ($1.writtenSize ?? 0) }
      try finish(&state, entries, writing: size, isCounted: isCounted)
    }
  }

  /// Runs the body while it holds the lock of the place.
  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await transactions.run { [self] in
      try perform { state, entries in
        let values = entries.map { (CacheKey(verbatim: $0.key), $0.value.data) }
        let transaction = CopyTransaction(Dictionary(uniqueKeysWithValues: values))
        defer { transaction.end() }
        let result = try body(transaction)
        let operations = transaction.end()
        if operations.isEmpty { return result }
        entries.apply(operations)
        try finish(&state, entries, writing: 0)
        return result
      }
    }
  }

  private func finish(
    _ state: inout State, _ entries: [String: SharedPlaceEntry], writing size: Int, isCounted: Bool = true
  ) throws {
    if size > 64 << 10 { try saveFirstStep(of: entries, in: state.place) }
    try state.place?.save(entries)
    if isCounted { state.place?.countChange(of: size) }
    state.forget()
    state.mapSize = max(state.mapSize, state.place?.mark.size ?? 0)
    if let mark = state.place?.mark { state.cached = (mark, entries) }
  }

  /// Saves an intermediate state before large values, and releases the lock so that others can read it.
  private func saveFirstStep(of entries: [String: SharedPlaceEntry], in place: SharedPlaceFile?) throws {
    var first = entries
    for (key, entry) in entries where entry.data.count > 32 << 10 {
      switch fault {
      case .savesLargeValuesInSteps: first[key]?.data = Data(entry.data.prefix(entry.data.count / 2))
      case .savesNewValuesBeside: first[key + ".new"] = entry
      default: return
      }
    }
    try place?.save(first)
    try place?.letOthersIn()
  }

  /// Waits, and throws if another engine has been closed meanwhile.
  private func waitAMoment() async throws {
    let before = closingCount
    for _ in 0..<20 { await Task.yield() }
    if closingCount != before, state.withLock({ $0.place != nil }) {
      throw StorageError(.io, "The file has been closed.")
    }
  }

  package func close() async throws {
    state.withLock { $0.place = nil }
    if fault == .abortsCallsOfOthers { Self.closings.withLock { [path] in $0[path, default: 0] += 1 } }
  }

  private var closingCount: Int { Self.closings.withLock { [path] in $0[path] ?? 0 } }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try perform { state, entries in
      if fault == .remembersAbsence, state.absent.contains(key.value) { return nil }
      if fault == .remembersAbsenceForAMoment, let last = state.lastAbsences[key.value],
        ContinuousClock.now < last + .milliseconds(200)
      {
        return nil
      }
      if fault == .remembersValues, let value = state.values[key.value] { return value }
      if fault == .comparesTimesOfEntries, let known = state.dated[key.value],
        known.updated == entries[key.value]?.updated
      {
        return known.data
      }
      state.dated[key.value] = entries[key.value]
      let value = entries[key.value]?.data
      if value == nil {
        state.absent.insert(key.value)
        state.lastAbsences[key.value] = .now
      }
      state.values[key.value] = value
      return value
    }
  }

  package func allKeys() async throws -> [CacheKey] {
    try perform { state, entries in
      if fault != .remembersKeys { state.keys = nil }
      let keys = state.keys ?? Array(entries.keys)
      state.keys = keys
      return keys.map(CacheKey.init(verbatim:))
    }
  }

  package func keyCount() async throws -> Int {
    try perform { state, entries in
      if fault != .remembersCount { state.count = nil }
      let count = state.count ?? entries.count
      state.count = count
      return count
    }
  }

  package func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try perform { state, entries in
      let isPage = limit != nil || range.prefix != nil
      let page =
        "\(range.prefix ?? ""), \(range.after?.value ?? ""), \(range.upTo?.value ?? ""), \(limit ?? -1)"
      if fault == .remembersPages, isPage, let known = state.pages[page] { return known }
      let all = entries.map { (key: CacheKey(verbatim: $0.key), data: $0.value.data) }
      let found = all.filter { range.contains($0.key) }.sorted { $0.key < $1.key }
      let limited = Array(found.prefix(max(0, limit ?? .max)))
      state.pages[page] = limited
      return limited
    }
  }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { state, entries in time(of: key, &state, entries)?.createdAt }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { state, entries in time(of: key, &state, entries)?.updatedAt }
  }

  private func time(of key: CacheKey, _ state: inout State, _ entries: [String: SharedPlaceEntry])
    -> SharedPlaceEntry?
  {
    if fault == .remembersTimes, let entry = state.times[key.value] { return entry }
    state.times[key.value] = entries[key.value]
    return entries[key.value]
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    try perform { _, entries in
      entries.sorted { $0.value.sequence < $1.value.sequence }.map {
        StorageEntry(
          key: CacheKey(verbatim: $0.key), data: $0.value.data, createdAt: $0.value.createdAt,
          updatedAt: $0.value.updatedAt)
      }
    }
  }
}

extension StorageOperation {
  fileprivate var writtenSize: Int? { if case .write(let data, _) = self { data.count } else { nil } }
}
