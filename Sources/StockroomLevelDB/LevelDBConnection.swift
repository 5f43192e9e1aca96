import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A database from opening to closing: recovers it, writes to it, repairs it after a failed write, and leaves
/// it in a state that the next opening can verify.
final class LevelDBConnection: Sendable {
  private struct State {
    var metadata: LevelDBMetadata
    var directorySync: LevelDBDirectorySync
    /// A write has failed. LevelDB's log may end in the middle of a batch, and LevelDB may refuse all further
    /// ones.
    var isBroken = false
    var isClosed = false
    var place: LevelDBDirectoryLock?
  }

  let files: LevelDBFiles
  private let paths: LevelDBPaths
  private let monitor: LevelDBDirectoryMonitor
  private let durability: Durability
  private let writeBufferSize: Int
  private let handleLock: LevelDBHandleLock
  private let compactor = LevelDBCompactor()
  let changeHub = ChangeHub()
  /// Accessed only on the engine's own threads, and while the engine is being deinitialized.
  private let state: MutexProtected<State>

  private var path: String { files.path }

  init(directory: FileManager.Directory, durability: Durability, permissions: FilePermissions) throws {
    let place = try LevelDBDirectoryLock(below: directory, permissions: permissions)
    files = place.files
    paths = LevelDBPaths(path: place.path, libraryPath: place.libraryPath)
    monitor = try LevelDBDirectoryMonitor(files, below: directory.path)
    self.durability = durability
    writeBufferSize = Self.writeBufferSize(at: place.path)
    let isNew = try LevelDBRecovery.prepare(files, for: durability)
    let handle = try Self.open(files, paths, writeBufferSize, durability, mayCreate: isNew)
    let metadata = try Self.readMetadata(handle, isNew: isNew)
    let directorySync = try LevelDBDirectorySync(syncing: files)
    // Opening has moved the contents of the logs to tables.
    if durability == .full { try LevelDBUnsyncedMarker.remove(from: files) }
    try monitor.begin()
    try monitor.check(handle)
    handleLock = LevelDBHandleLock(handle)
    state = MutexProtected(State(metadata: metadata, directorySync: directorySync, place: place))
  }

  /// How thoroughly a read checks whether the files are unchanged.
  enum Check {
    /// For a few keys. Reading them takes less time than a check of the files.
    case fewKeys
    /// For some entries.
    case once
    /// For all entries.
    case eachFile
    /// For ``StorageEngine/verify()``.
    case eachFileToItsEnd
  }

  /// Calls `body` with the open database. Suspends while a failed write is being repaired.
  ///
  /// - Parameter thread: The engine's own thread, on which the database is reopened if that has failed
  ///   before.
  func read<Value>(
    _ check: Check, on thread: DedicatedThread, _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    let reopen: (Int) async throws -> Void = { failures in
      try await thread.run { [self] in try self.reopen(after: failures) }
    }
    return try await handleLock.withHandle(reopening: reopen) { handle in
      switch check {
      case .fewKeys: try monitor.checkForFewKeys(handle)
      case .once:
        try monitor.check(handle)
        let value = try await body(handle)
        // LevelDB treats a missing table like one that does not contain the key (rule R4).
        try monitor.check(handle)
        return value
      case .eachFile: try monitor.checkEverything(handle)
      case .eachFileToItsEnd:
        try monitor.checkEverything(handle, verifyingEnds: true)
        _ = try LevelDBManifest(in: files)
      }
      return try await body(handle)
    }
  }

  /// Like ``read(_:on:_:)``, for a body that takes long: checks each file again once it has returned (rule
  /// C6).
  func readLong<Value>(
    on thread: DedicatedThread, _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    try await read(.eachFile, on: thread) { handle in
      let value = try await body(handle)
      try monitor.checkEverything(handle)
      return value
    }
  }

  /// Makes the changes of the requests as one batch. Call it on the engine's own thread: it waits for the
  /// disk.
  func commit(_ requests: [WriteRequest]) throws {
    // Sorted before anything is locked, unless there are transactions, which must read the database first.
    var operations = requests.knownOperations ?? []
    let known = operations.isEmpty ? nil : SortedBatch(joining: operations, requests.times(of: operations))
    let removedKeys = try commit { transaction in
      if let known { return try transaction.add(known) }
      let reader = LevelDBEntryReader(handle: transaction.handle)
      operations = requests.operations(reading: reader, LevelDBStorageEngine.valueLimit)
      try transaction.add(SortedBatch(joining: operations, requests.times(of: operations)))
    }
    changeHub.send(requests, operations)
    if !removedKeys.isEmpty { reclaimSpace(ofKeysFrom: removedKeys) }
  }

  /// Commits the changes that `fill` adds to the transaction.
  ///
  /// - Returns: The ``LevelDBTransaction/removedKeys``.
  @discardableResult
  func commit(_ fill: (inout LevelDBTransaction) throws -> Void) throws -> [[UInt8]] {
    try state.withLock { state in
      try monitor.check(try? handleLock.current.get())
      if state.isBroken { try reopenAfterFailure(&state) }
      try state.directorySync.checkLog(in: files)
      do {
        return try attempt(fill, &state)
      } catch let failure where state.isBroken {
        // LevelDB repeats an error of its background work, such as a full disk, long after the cause has
        // disappeared.
        do { try reopenAfterFailure(&state) } catch { throw failure }
        return try attempt(fill, &state)
      }
    }
  }

  /// Writes one batch. If it throws, nothing has been written. If LevelDB failed, ``State/isBroken`` is true until the database has
  /// been reopened.
  private func attempt(
    _ fill: (inout LevelDBTransaction) throws -> Void, _ state: inout State
  ) throws -> [[UInt8]] {
    var transaction = LevelDBTransaction(on: try handleLock.current.get(), metadata: state.metadata)
    try fill(&transaction)
    // The body of a transaction may have taken long, so the files are checked again.
    try monitor.check(transaction.handle)
    var isVisible = false
    do {
      let metadata = try transaction.commit()
      if metadata.generation != state.metadata.generation {
        isVisible = true
        try state.directorySync.followLog(in: files, syncing: durability == .full)
        // A commit that no later opening will find is not acknowledged (rule C6).
        try monitor.check(transaction.handle)
      }
      state.metadata = metadata
      return transaction.removedKeys
    } catch {
      state.isBroken = true
      withdraw(isVisible, &state)
      throw error
    }
  }

  /// Closes the database. Waits for a compaction and for the disk.
  ///
  /// - Parameter writesMarker: Whether to move the contents of the log to a table, and to record the state
  ///   of the files, so that the next opening neither reads a long log nor mistakes corruption for a crash.
  ///   That takes a few syncs.
  func close(writingMarker writesMarker: Bool) {
    compactor.stop()
    state.withLock { state in
      guard !state.isClosed else { return }
      state.isClosed = true
      // If any of this fails, there is no marker, and the next opening behaves as after a crash. Nothing is
      // lost.
      var isMarking = writesMarker
      if isMarking, !state.isBroken { isMarking = (try? emptyLog()) != nil }
      try? handleLock.exchange {
        throw StorageError(.closed, "The LevelDB database in \(path) has been closed.")
      }
      if state.isBroken, (try? dropUnacknowledged(state.metadata)) == nil { isMarking = false }
      if isMarking { try? writeMarker() }
      state.place = nil
      monitor.close()
    }
  }

  private func emptyLog() throws {
    func isLong() throws -> Bool {
      try files.size(of: LevelDBFileList(in: files).logs) > Self.greatestLogAtOpening
    }
    let handle = try handleLock.current.get()
    try monitor.check(handle)
    guard try isLong() else { return }
    handle.emptyLog()
    if try isLong() { throw StorageError(.io, "LevelDB could not move its log in \(path) to a table.") }
  }

  private func writeMarker() throws {
    let list = try LevelDBFileList(in: files)
    for name in list.all {
      if let status = try files.status(of: name) { files.restrict(name, status) }
    }
    // The marker must not reach the disk before the files that it describes, and before files that LevelDB
    // has removed are gone.
    try files.synchronize()
    // LevelDB has synced the manifest, unless it has failed.
    for name in list.manifests + (durability == .process ? list.logs : []) { try files.synchronize(name) }
    try LevelDBCleanShutdownMarker(describing: files).write(to: files)
  }
}

// After all entries have been removed.
extension LevelDBConnection {
  /// Frees the space that the removed entries take in tables, range by range, on a separate thread.
  private func reclaimSpace(ofKeysFrom starts: [[UInt8]]) {
    for (index, start) in starts.enumerated() {
      compactor.enqueue { [self] in
        // Compacting begins a new log. A log without a batch would look like one whose batches have been
        // lost.
        _ = try commit { $0.touchMetadata() }
        // LevelDB 1.23 ends the process if a write fails while a range is being compacted, so no write is
        // made during that.
        state.withLock { state in
          if state.isBroken { return }
          handleLock.ifOpen { handle in
            let isLast = index == starts.count - 1
            handle.compact(from: index == 0 ? nil : start, to: isLast ? nil : starts[index + 1])
          }
        }
      }
    }
  }
}

// After a failed write.
extension LevelDBConnection {
  /// Withdraws a batch that will not be acknowledged.
  ///
  /// Until this succeeds, nothing is written; the next commit retries it, and so does the next read if the
  /// database is not open.
  private func withdraw(_ isVisible: Bool, _ state: inout State) {
    guard isVisible else {
      try? dropUnacknowledged(state.metadata)
      return
    }
    // LevelDB shows the batch until it is reopened, and readers must not see it.
    do {
      try reopenAfterFailure(&state)
    } catch {
      try? handleLock.exchange { throw error }
    }
  }

  /// Ensures that a batch that was not acknowledged does not reappear when the log is read again (rule F1).
  private func dropUnacknowledged(_ metadata: LevelDBMetadata) throws {
    for log in try LevelDBFileList(in: files).logs {
      try LevelDBLog.removeBatches(after: metadata.generation, from: log, in: files)
    }
  }

  /// Reopens the database after a repair has failed: the cause may have disappeared. Does nothing if it is open.
  ///
  /// - Parameter failures: The ``LevelDBHandleLock/failures`` when the caller found that the database is not
  ///   open. If an attempt has failed since then, no other is made.
  /// - Throws: the error of opening it.
  private func reopen(after failures: Int) throws {
    try state.withLock { state in
      guard case .failure(let failure) = handleLock.current else { return }
      if state.isClosed || handleLock.failures != failures { throw failure }
      do {
        try monitor.check(nil)
        try reopenAfterFailure(&state)
      } catch {
        handleLock.noteFailure(error)
        throw error
      }
    }
  }

  /// Closes the database and reopens it, which is the only way to make LevelDB write again.
  ///
  /// Opening needs space, so the database stays open for reading until there is enough.
  private func reopenAfterFailure(_ state: inout State) throws {
    try dropUnacknowledged(state.metadata)
    // If one of these files were immutable, the database could not be opened again, not even for reading (rule F4).
    for name in ["LOCK", "CURRENT"] { try files.verifyMutable(name) }
    let list = try LevelDBFileList(in: files)
    try list.verifyKinds(in: files, allowingDirectories: true)
    // Each log is written to a table; and if there are several, once more to the new log.
    let copies = list.logs.count > 1 ? 2 : 1
    try files.reserve(256 << 10 + copies * files.size(of: list.logs) + files.size(of: list.manifests))
    let expected = state.metadata
    try handleLock.exchange {
      monitor.expectNewManifest()
      let handle = try Self.open(files, paths, writeBufferSize, durability, mayCreate: false)
      try monitor.begin()
      // Checked before readers get the database: if it has lost batches, it is closed again (rule F2).
      guard try Self.readMetadata(handle, isNew: expected == LevelDBMetadata()) == expected else {
        throw StorageError(.corrupted, "The LevelDB database in \(path) has lost its last batches.")
      }
      return handle
    }
    state.directorySync = try LevelDBDirectorySync(syncing: files)
    state.isBroken = false
  }
}
