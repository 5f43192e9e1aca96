import Foundation
import StockroomCore

/// A correct engine with a log that it compacts. Its faults appear after many calls, or when the clock jumps.
package final class LifeFaultEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // Compaction
    case compactionDropsTheNewest, compactionRevives, compactionRedates, compactionReorders, compactsInPlace
    case compactionDropsLargeValues, compactionDropsEmptyValues, compactionIsUnchecked, neverCompacts,
      keepsOldLogs, readsOldLogs
    case compactionIgnoresAFullDisk, compactionIsReadableByAll, compactionFollowsLinks
    case neverCompactsAfterErrors
    // Counters and structures that grow
    case wrapsSequences, wrapsVersions, losesAtSplits, countsRemovalsTwice, forgetsTheTail, mergesRevive
    // Leaked resources
    case leaksFilesPerError, leaksFilesPerValue, leaksDescriptorsPerCancellation, leaksDescriptorsPerScan
    case leaksThreads, keepsVersionsInMemory, hidesItsPlace
    case leaksFilesPerRemovalOfAll, leaksDescriptorsPerOpening, leaksFilesPerCount, leavesTemporaryFiles
    case leaksFilesPerRefusedQuestion, keepsCachesOfOpenings, countsOpeningsInAByte
    case leavesLocksOfKeys, keepsAbsentKeys, keepsResultsOfScans
    // What is read at opening
    case readsTheFirstSegment, readsTheTimesOfTheFirstSegment, readsFilesByName
    // Time
    case expiresAfterMinutes, expiresAfterADay, expiresAfter30Days, expiresBetweenOpenings, dropsTheFuture
    case refusesOlder, ignoresOlder, refusesTheFuture, removesNothingOfTheFuture, emptiesUpToATime
    case signedSeconds, unsignedSeconds, localTime, localTimeTwice, localTimeByName, secondsAfterReopening
    case floatTimes, clockOfTheOpening, neverGoesBack, ordersByTime, weekYears, unsignedSince2001
    // No faults
    case compactsEagerly, keepsTwoCopies, countsTicks, clockOfFiles
  }

  package static let promises: EngineCapabilities = [.persistent, .atomicBatches, .snapshotReads]
  package let capabilities = promises

  struct Entry: Sendable {
    var data: Data
    var createdAt: Date
    var updatedAt: Date
    var sequence: Int
    /// The previous value, and the numbers of both versions.
    var older: Data?
    var olderVersion = 0
    var version = 0
  }

  struct State: ~Copyable {
    var log: LifeFaultLog?
    var entries: [CacheKey: Entry] = [:]
    var sequence = 0
    var changes = 0
    var newest: CacheKey?
    var removed: (key: CacheKey, entry: Entry)?
    /// The first removed entry, and the number of bytes written since tables were merged.
    var removedFirst: (key: CacheKey, entry: Entry)?
    var written = 0
    var countError = 0
    /// Whether a call that threw still holds a snapshot, which prevents compactions.
    var isPinned = false
    var kept: [Data] = []
    var latest = Date.distantPast
    /// When everything was last removed.
    var emptiedAt = Date.distantPast
  }

  private let state: MutexProtected<State>
  private let fault: Fault?
  private let clock: LifeFaultClock
  private let directory: URL

  package init(directory: URL, fault: Fault? = nil) throws {
    (self.fault, self.directory) = (fault, directory)
    clock = LifeFaultClock(fault: fault)
    if fault == .leaksDescriptorsPerOpening { _ = open("/dev/null", O_RDONLY) }
    var state = State()
    state.log = try LifeFaultLog(in: directory, fault: fault)
    let records = try state.log?.records() ?? []
    for record in fault == .readsFilesByName ? LifeFaultLog.orderedByFileName(records) : records {
      for change in record { state.take(change) }
    }
    if fault == .readsTheFirstSegment, state.entries.count > 512 {
      let first = state.entries.sorted { $0.value.sequence < $1.value.sequence }.prefix(512)
      state.entries = Dictionary(uniqueKeysWithValues: first.map { ($0.key, $0.value) })
    }
    if fault == .readsTheTimesOfTheFirstSegment { state.redate(beyond: 512) }
    if fault == .keepsCachesOfOpenings { Self.keepCache() }
    if fault == .countsOpeningsInAByte, try Self.countOpening(of: directory) > 255 { state.entries = [:] }
    if fault == .dropsTheFuture { state.entries = state.entries.filter { $0.value.updatedAt <= Date() } }
    if fault == .expiresBetweenOpenings {
      state.entries = state.entries.filter { $0.value.updatedAt > Date() - 300 }
    }
    if fault == .refusesTheFuture, state.entries.values.contains(where: { $0.updatedAt > Date() + 1 }) {
      throw StorageError(.corrupted, "\(directory.path) has entries of the future.")
    }
    self.state = MutexProtected(state)
  }

  private func perform<Result: Sendable>(_ body: (inout State) throws -> Result) throws -> Result {
    if fault == .leaksThreads { Thread.detachNewThread { while true { sleep(1_000) } } }
    return try state.withLock { state in
      guard state.log != nil else { throw StorageError(.closed, "The engine has been closed.") }
      return try body(&state)
    }
  }

  // MARK: - Changes

  package func apply(_ operations: [StorageOperation]) async throws {
    do {
      try operations.validate()
    } catch {
      if fault == .leaksFilesPerError { try leaveFile() }
      state.withLock { $0.isPinned = fault == .neverCompactsAfterErrors }
      throw error
    }
    if Task.isCancelled {
      if fault == .leaksDescriptorsPerCancellation { _ = open("/dev/null", O_RDONLY) }
      throw CancellationError()
    }
    if operations.isEmpty { return }
    if fault == .leavesTemporaryFiles { try Self.leaveFile(in: FileManager.default.temporaryDirectory) }
    try perform { state in
      let now = clock.now(after: &state.latest)
      if fault == .refusesOlder, state.entries.values.contains(where: { now < $0.updatedAt - 1 }) {
        throw StorageError(.io, "The clock has gone back.")
      }
      var changes: [LifeFaultLog.Change] = []
      let before = operations.reduce(into: [CacheKey: Entry?]()) { before, operation in
        switch operation {
        case .write(_, let key), .remove(let key): before.updateValue(state.entries[key], forKey: key)
        case .removeAll: before.merge(state.entries.mapValues(Optional.some)) { old, _ in old }
        }
      }
      for operation in operations {
        if fault == .leaksFilesPerRemovalOfAll, case .removeAll = operation { try leaveFile() }
        state.changes += 1
        if let change = state.change(operation, at: now, fault) {
          if fault == .losesAtSplits, state.changes % 4_096 == 0 { continue }
          changes.append(change)
          state.note(change, fault)
          if fault == .leaksFilesPerValue, let data = change.entry?.data, data.count > 4_096 {
            try leaveFile()
          }
        }
      }
      do {
        try state.log?.append(changes, clock)
      } catch {
        for (key, entry) in before { state.entries[key] = entry }
        throw error
      }
      if state.log?.mustBeCompacted == true, !state.isPinned { try state.compact(fault, clock) }
    }
  }

  private func leaveFile() throws { try Self.leaveFile(in: directory) }

  package func close() async throws {
    state.withLock { state in
      if fault == .forgetsTheTail, state.changes > 200 { state.log?.forgetTheTail() }
      state.log = nil
    }
  }

  // MARK: - Reading

  /// The entries that have not expired.
  private func visible(_ state: borrowing State) -> [CacheKey: Entry] {
    let age: TimeInterval? =
      switch fault {
      case .expiresAfterMinutes: 300
      case .expiresAfterADay: 86_400
      case .expiresAfter30Days: 30 * 86_400
      default: nil
      }
    guard let age else { return state.entries }
    return state.entries.filter { $0.value.updatedAt > Date() - age }
  }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    if fault == .leavesLocksOfKeys { try Self.leaveLock(of: key, in: directory) }
    return try perform { state in
      guard let entry = visible(state)[key] else {
        if fault == .keepsAbsentKeys { state.kept.append(Data(repeating: 1, count: 4_096)) }
        return nil
      }
      // The latest version is the one with the highest number, which has 13 bits.
      if fault == .wrapsVersions, entry.version % (1 << 13) < entry.olderVersion % (1 << 13) {
        return entry.older
      }
      return entry.data
    }
  }

  package func keyCount() async throws -> Int {
    if fault == .leaksFilesPerCount { try leaveFile() }
    return try perform { visible($0).count - $0.countError }
  }

  package func allKeys() async throws -> [CacheKey] { try perform { Array(visible($0).keys) } }

  package func createdAt(key: CacheKey) async throws -> Date? {
    if fault == .leaksFilesPerRefusedQuestion, key.value.isEmpty { try leaveFile() }
    try key.validate()
    return try perform { visible($0)[key]?.createdAt }.map(clock.shown)
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try perform { visible($0)[key]?.updatedAt }.map(clock.shown)
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    if fault == .leaksDescriptorsPerScan { _ = open("/dev/null", O_RDONLY) }
    return try perform { state in
      if fault == .keepsResultsOfScans { state.kept.append(Data(repeating: 1, count: 192 << 10)) }
      return visible(state).sorted {
        fault == .ordersByTime
          ? ($0.value.createdAt, $0.value.sequence) < ($1.value.createdAt, $1.value.sequence)
          : $0.value.sequence < $1.value.sequence
      }.map {
        StorageEntry(
          key: $0.key, data: $0.value.data, createdAt: clock.shown($0.value.createdAt),
          updatedAt: clock.shown($0.value.updatedAt))
      }
    }
  }
}

extension LifeFaultEngine.State {
  /// The change of an operation; nil if it changes nothing.
  mutating func change(
    _ operation: StorageOperation, at now: Date, _ fault: LifeFaultEngine.Fault?
  ) -> LifeFaultLog.Change? {
    switch operation {
    case .removeAll:
      emptiedAt = max(emptiedAt, now)
      return .init(key: nil, entry: nil)
    case .remove(let key):
      if fault == .removesNothingOfTheFuture, let old = entries[key], now < old.updatedAt { return nil }
      return .init(key: key, entry: nil)
    case .write(let data, let key):
      let old = entries[key]
      if fault == .ignoresOlder, let old, now < old.updatedAt { return nil }
      if fault == .emptiesUpToATime, now < emptiedAt { return nil }
      sequence += 1
      if fault == .wrapsSequences { sequence %= 1 << 13 }
      if fault == .keepsVersionsInMemory, let old { kept.append(old.data) }
      return .init(
        key: key,
        entry: LifeFaultEngine.Entry(
          data: Data(data), createdAt: old?.createdAt ?? now, updatedAt: max(old?.updatedAt ?? now, now),
          sequence: old?.sequence ?? sequence, older: old?.data, olderVersion: old?.version ?? 0,
          version: changes))
    }
  }

  /// Applies a change that was made.
  mutating func note(_ change: LifeFaultLog.Change, _ fault: LifeFaultEngine.Fault?) {
    guard let key = change.key else { return entries = [:] }
    if change.entry == nil, let entry = entries[key] {
      removed = (key, entry)
      if removedFirst == nil { removedFirst = (key, entry) }
      if fault == .countsRemovalsTwice, changes % 900 == 0 { countError += 1 }
    }
    if change.entry != nil { newest = key }
    entries[key] = change.entry
    written += change.entry?.data.count ?? 0
    if fault == .mergesRevive, written > 4 << 20 {
      // The removal marker is dropped with its table before the entry itself.
      if let removedFirst { entries[removedFirst.key] = removedFirst.entry }
      written = 0
    }
    if fault != .wrapsSequences { sequence = max(sequence, change.entry?.sequence ?? 0) }
  }

  /// Applies a change that was found in the log.
  mutating func take(_ change: LifeFaultLog.Change) {
    note(change, nil)
    changes += 1
  }

  /// Writes the entries to a new log.
  mutating func compact(_ fault: LifeFaultEngine.Fault?, _ clock: LifeFaultClock) throws {
    switch fault {
    case .compactionDropsTheNewest: if let newest { entries[newest] = nil }
    case .compactionRevives:
      if let removed, entries[removed.key] == nil { entries[removed.key] = removed.entry }
    case .compactionRedates:
      for key in entries.keys { entries[key]?.updatedAt = Date() }
    case .compactionReorders:
      for (rank, key) in entries.keys.sorted().enumerated() { entries[key]?.sequence = rank }
      sequence += entries.count
    case .compactionDropsLargeValues: entries = entries.filter { $0.value.data.count < 4_096 }
    case .compactionDropsEmptyValues: entries = entries.filter { !$0.value.data.isEmpty }
    default: break
    }
    let inOrder = entries.sorted { $0.value.sequence < $1.value.sequence }
    try log?.replace(with: inOrder.map { LifeFaultLog.Change(key: $0.key, entry: $0.value) }, clock)
  }
}
