import Foundation
import StockroomCore

/// A correct engine that keeps every promise that a single process can check. The tests derive faulty engines from it.
///
/// Without a directory it keeps its entries in memory, with one also in a log: see ``LogFile``.
package final class ReferenceEngine: ApplyingEngine {
  /// A deliberate fault.
  package enum Fault: Sendable {
    case forgetsUntilClosed, needsDirectory, clearsTheWay, sharesNothing, keepsFileOpen, reportsFullDiskAsIO
    case remembersFailedWrites, startsAnewWhenCorrupted, startsAnewOnceItHasThrown, ignoresChecksums,
      reportsReadOnlyAsIO,
      refusesOnlyWrites, forgetsRemovals, forgetsRemoveAll, savesWholeSeconds, savesLittle, rotatesAway,
      keepsLock
    case acknowledgesWhenClosed, closesOnce, leaksWhenCorrupted, knowsPathsByName, ordersByKeyWhenOpened
    case countsWritesWhenOpened
    case closesNothing, keepsFileOpenUntilDropped, keepsLockUntilDropped
    case makesPublicFiles, makesPublicDirectories, followsForeignLinks, followsLinksToNowhere
    case followsLinksToItsFiles, waitsForFIFOs, clearsDirectoriesAway
    case ignoresItsPlace, noticesDeletionOnly, noticesAbsenceOnly, noticesDirectoryOnly, looksBeforeBodiesOnly
    case takesTornTails, fillsTornTails, remembersRefusedWrites, repeatsRefusedWrites
    case datesInItsOwnTurn, numbersInItsOwnTurn, takesLongRecordsForTorn
    case readsEverythingAfterCrashes
  }

  package static let promises: EngineCapabilities = [
    .persistent, .atomicBatches, .snapshotReads, .orderedScans, .detectsCorruption,
  ]

  private let shared: MutexProtected<SharedContents?>
  /// The contents that a fault keeps after close().
  private let remains = MutexProtected<SharedContents?>(nil)
  private let refusesWrites = MutexProtected(false)
  /// Whether a call holds the lock of this engine, which two faults use before that of the place.
  private let isTaken = MutexProtected(false)
  private let fault: Fault?
  /// A file that exists while an engine with a fault is open.
  private let mark: String?
  private let transactions = DedicatedThread()
  private let hasTransactions = MutexProtected(false)
  package let capabilities: EngineCapabilities

  package init(directory: URL? = nil, fault: Fault? = nil, claiming claims: EngineCapabilities? = nil) throws
  {
    self.fault = fault
    capabilities =
      claims
      ?? (directory == nil ? Self.promises.subtracting([.persistent, .detectsCorruption]) : Self.promises)
    shared = MutexProtected(
      try directory.map { try SharedContents.shared(at: $0, fault: fault) }
        ?? SharedContents(log: nil, fault: fault))
    mark =
      fault == .readsEverythingAfterCrashes ? directory.map { $0.path(percentEncoded: false) + "/open" } : nil
    guard let mark else { return }
    if FileManager.default.fileExists(atPath: mark) { _ = try everything() }
    _ = FileManager.default.createFile(
      atPath: mark, contents: nil, attributes: [.posixPermissions: 0o600])
  }

  deinit {
    transactions.stop()
    shared.withLock { $0 }?.feed.finish(of: ObjectIdentifier(self))
    if fault == .keepsLockUntilDropped { (remains.withLock { $0 } ?? shared.withLock { $0 })?.unlock() }
  }

  private func open() throws -> SharedContents {
    guard let shared = shared.withLock({ $0 }) else {
      throw StorageError(.closed, "The engine has been closed.")
    }
    return shared
  }

  /// All entries, on the caller's thread.
  package func everything() throws -> [(key: CacheKey, data: Data)] {
    try look { $0.entries.map { ($0.key, $0.value.data) } }
  }

  private func look<Value>(inOrder: Bool = false, _ body: (borrowing Contents) throws -> Value) throws
    -> Value
  {
    try open().look(inOrder: inOrder, body)
  }

  package func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try look { $0.entries[key]?.data }
  }

  package func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  package func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    await Task.yield()
    return try look { contents in keys.compactMap { key in contents.entries[key].map { (key, $0.data) } } }
  }

  package func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  package func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    await Task.yield()
    return try everything()
  }

  package func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  package func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try look { contents in keys.filter { contents.entries[$0] != nil } }
  }

  package func keyCount() async throws -> Int { try look { $0.entries.count + $0.surplus } }

  package func allKeys() async throws -> [CacheKey] { try look(inOrder: true) { $0.sortedKeys } }

  package func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0.entries[key]?.createdAt }
  }

  package func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0.entries[key]?.updatedAt }
  }

  package func readAllEntries() async throws -> [StorageEntry] {
    await Task.yield()
    return try entries()
  }

  /// All entries in order, on the caller's thread.
  package func entries() throws -> [StorageEntry] {
    try look { contents in
      contents.entries.sorted { $0.value.sequence < $1.value.sequence }.map { key, entry in
        StorageEntry(key: key, data: entry.data, createdAt: entry.createdAt, updatedAt: entry.updatedAt)
      }
    }
  }

  package func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try Task.checkCancellation()
    if fault == .acknowledgesWhenClosed, shared.withLock({ $0 == nil }) { return }
    if refusesWrites.withLock({ $0 }) { throw StorageError(.closed, "The engine has been closed.") }
    if fault == .datesInItsOwnTurn || fault == .numbersInItsOwnTurn {
      return try await commitInTurn(operations)
    }
    if !operations.isEmpty { try open().commit(operations) }
  }

  /// Dates or numbers the operations under the lock of this engine, and then commits them.
  private func commitInTurn(_ operations: [StorageOperation]) async throws {
    let shared = try open()
    if operations.isEmpty { return }
    while isTaken.withLock({ isTaken in
      defer { isTaken = true }
      return isTaken
    }) { await Task.yield() }
    defer { isTaken.withLock { $0 = false } }
    let stamp = try shared.stamp(operations, withTime: fault == .datesInItsOwnTurn)
    for _ in 0..<4 { await Task.yield() }
    try shared.commit(operations, stamped: stamp)
  }

  package func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let cursor = KeyRangeCursor(range)
    await Task.yield()
    return try look(inOrder: true) { contents in
      var found: [(key: CacheKey, data: Data)] = []
      let start = contents.sortedKeys.bisect { cursor.position(of: $0) != .before }
      for key in contents.sortedKeys[start...] {
        let position = cursor.position(of: key)
        if found.count >= max(0, limit ?? .max) || position == .behind { break }
        if position == .inside, let entry = contents.entries[key] { found.append((key, entry.data)) }
      }
      return found
    }
  }

  package func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    let shared = try open()
    hasTransactions.withLock { $0 = true }
    let origin = ChangeOrigin.current
    return try await transactions.run { try shared.transact(body, from: origin) }
  }

  /// The same as ``withTransaction(_:)``, on the caller's thread.
  package func transact<Result>(_ body: (any StorageTransaction) throws -> Result) throws -> Result {
    try open().transact(body, from: ChangeOrigin.current)
  }

  /// The same as ``apply(_:)``, on the caller's thread.
  package func commit(_ operations: [StorageOperation]) throws { try open().commit(operations) }

  package func changes() async throws -> StorageChanges {
    try Task.checkCancellation()
    // In one step: a `close()` between reading the shared contents and subscribing would leave a stream that never
    // ends.
    return try shared.withLock { shared in
      guard let shared else { throw StorageError(.closed, "The engine has been closed.") }
      return try shared.subscribe(ObjectIdentifier(self))
    }
  }

  package func close() async throws {
    if fault == .closesNothing { return }
    // Transactions in progress are completed.
    if hasTransactions.withLock({ $0 }) { try await transactions.run {} }
    guard let shared = shared.withLock({ fault == .refusesOnlyWrites ? $0 : $0.take() }) else {
      if fault == .closesOnce { throw StorageError(.io, "The engine cannot be closed again.") }
      return
    }
    shared.feed.finish(of: ObjectIdentifier(self))
    if fault == .keepsLock { shared.unlock() }
    if fault == .keepsFileOpenUntilDropped || fault == .keepsLockUntilDropped {
      remains.withLock { $0 = shared }
    }
    if fault == .refusesOnlyWrites { refusesWrites.withLock { $0 = true } }
    try shared.flush()
    if let mark { try FileManager.default.removeItem(atPath: mark) }
  }
}
