import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A database from opening to closing: recovers it, writes to it, mends it after a failed write, and leaves it in a
/// state that the next opening can verify.
final class LevelDBConnection: Sendable {
  private struct State {
    var metadata: LevelDBMetadata
    var directorySync: LevelDBDirectorySync
    /// A write has failed. LevelDB's log may end in the middle of a batch, and it may refuse all further ones.
    var isBroken = false
    var isClosed = false
    var place: LevelDBDirectoryLock?
  }

  private let files: LevelDBFiles
  private let paths: LevelDBPaths
  private let monitor: LevelDBDirectoryMonitor
  private let durability: Durability
  private let writeBufferSize: Int
  private let handleLock: LevelDBHandleLock
  private let compactor = LevelDBCompactor()
  let changeHub = ChangeHub()
  /// Touched by the engine's own threads only, and by the last one to hold the engine.
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
    // What was in the logs is in tables now.
    if durability == .full { try LevelDBUnsyncedMarker.remove(from: files) }
    try monitor.begin()
    try monitor.check(handle)
    handleLock = LevelDBHandleLock(handle)
    state = MutexProtected(State(metadata: metadata, directorySync: directorySync, place: place))
  }

  /// How closely a read looks whether the files are what they were.
  enum Check {
    /// For a few keys, which are read in less time than a look at the files takes.
    case fewKeys
    /// For some entries.
    case once
    /// For all entries.
    case eachFile
    /// For ``StorageEngine/verify()``.
    case eachFileToItsEnd
  }

  /// Calls `body` with the open database. Suspends while a failed write is being mended.
  ///
  /// - Parameter thread: The engine's own, on which the database is reopened if that has failed before.
  func read<Value>(
    _ check: Check, on thread: DedicatedThread, _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    let reopen: (Int) async throws -> Void = { failures in
      try await thread.run { [self] in try self.reopen(after: failures) }
    }
    return try await handleLock.withHandle(reopening: reopen) { handle in
      switch check {
      case .fewKeys: try monitor.checkForFewKeys(handle)
      case .once: try monitor.check(handle)
      case .eachFile: try monitor.checkEverything(handle)
      case .eachFileToItsEnd:
        try monitor.checkEverything(handle, verifyingEnds: true)
        _ = try LevelDBManifest(in: files)
      }
      return try await body(handle)
    }
  }

  /// As ``read(_:on:_:)``, for a body that takes long: looks at each file again once it has returned (rule C6).
  func readLong<Value>(
    on thread: DedicatedThread, _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    try await read(.eachFile, on: thread) { handle in
      let value = try await body(handle)
      try monitor.checkEverything(handle)
      return value
    }
  }

  /// Does the requests as one batch. On the engine's own thread: waits for the disk.
  func commit(_ requests: [WriteRequest]) throws {
    // Put in order before anything is locked, if there are no transactions that have to look at the database first.
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

  /// Commits what `fill` adds to the transaction.
  ///
  /// - Returns: What ``LevelDBTransaction/removedKeys`` says.
  @discardableResult
  func commit(_ fill: (inout LevelDBTransaction) throws -> Void) throws -> [[UInt8]] {
    try state.withLock { state in
      try monitor.check(try? handleLock.current.get())
      if state.isBroken { try mend(&state) }
      try state.directorySync.checkLog(in: files)
      do {
        return try attempt(fill, &state)
      } catch let failure where state.isBroken {
        // LevelDB repeats what went wrong in its background, such as a full disk, long after the cause has gone.
        do { try mend(&state) } catch { throw failure }
        return try attempt(fill, &state)
      }
    }
  }

  /// Writes one batch. If it throws, nothing has happened; the database is broken if LevelDB failed.
  private func attempt(
    _ fill: (inout LevelDBTransaction) throws -> Void, _ state: inout State
  ) throws -> [[UInt8]] {
    var transaction = LevelDBTransaction(on: try handleLock.current.get(), metadata: state.metadata)
    try fill(&transaction)
    // The body of a transaction may have taken its time.
    try monitor.check(transaction.handle)
    var isVisible = false
    do {
      let metadata = try transaction.commit()
      if metadata.generation != state.metadata.generation {
        isVisible = true
        try state.directorySync.followLog(in: files, syncing: durability == .full)
        // What no opening will find is not acknowledged (rule C6).
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
  /// - Parameter isEasingOpening: Whether to move what is in the log to a table, and to write down what the files are like, so that
  ///   the next opening neither reads a long log nor takes corruption for a crash. That takes a few syncs.
  func close(easingOpening isEasingOpening: Bool) {
    compactor.stop()
    state.withLock { state in
      guard !state.isClosed else { return }
      state.isClosed = true
      // Where any of this fails there is no marker, and the next opening takes the same way as after a crash. Nothing is lost.
      var isMarking = isEasingOpening
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
    // The marker must not reach the disk before what it describes, and before what LevelDB has removed is gone.
    try files.synchronize()
    // LevelDB has synced the manifest, unless it has failed.
    for name in list.manifests + (durability == .process ? list.logs : []) { try files.synchronize(name) }
    try LevelDBCleanShutdownMarker(describing: files).write(to: files)
  }
}

// After everything has been removed.
extension LevelDBConnection {
  /// Gives the room back that the removed entries take up in tables, range by range, on a thread of its own.
  private func reclaimSpace(ofKeysFrom starts: [[UInt8]]) {
    for (index, start) in starts.enumerated() {
      compactor.enqueue { [self] in
        // Compacting begins a new log. One without a batch would look like one whose batches have been lost.
        _ = try commit { $0.touchMetadata() }
        // LevelDB 1.23 ends the process if a write fails while a range is being compacted, so none is made then.
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
  /// Takes a batch back that is not going to be acknowledged.
  ///
  /// As long as this does not succeed, nothing is written; the next commit tries it again, and the next read too if the
  /// database is not open.
  private func withdraw(_ isVisible: Bool, _ state: inout State) {
    guard isVisible else {
      try? dropUnacknowledged(state.metadata)
      return
    }
    // Only when it is reopened LevelDB forgets the batch too. Until then it must not be visible.
    do {
      try mend(&state)
    } catch {
      try? handleLock.exchange { throw error }
    }
  }

  /// Makes sure that a batch which was not acknowledged does not come back when the log is read again (rule F1).
  private func dropUnacknowledged(_ metadata: LevelDBMetadata) throws {
    for log in try LevelDBFileList(in: files).logs {
      try LevelDBLog.removeBatches(after: metadata.generation, from: log, in: files)
    }
  }

  /// Opens the database that is not open because mending it has failed: what kept it from being opened may have gone. Does
  /// nothing if it is open.
  ///
  /// - Parameter failures: What ``LevelDBHandleLock/failures`` was when the caller found that the database is not open. If an
  ///   attempt has failed since, no other is made.
  /// - Throws: what keeps it from being opened.
  private func reopen(after failures: Int) throws {
    try state.withLock { state in
      guard case .failure(let failure) = handleLock.current else { return }
      if state.isClosed || handleLock.failures != failures { throw failure }
      do {
        try monitor.check(nil)
        try mend(&state)
      } catch {
        handleLock.noteFailure(error)
        throw error
      }
    }
  }

  /// Closes the database and reopens it, which is the only way to make LevelDB write again.
  ///
  /// Opening needs room, so the database stays as it is, and can be read, until there is some.
  private func mend(_ state: inout State) throws {
    try dropUnacknowledged(state.metadata)
    let list = try LevelDBFileList(in: files)
    // Each log goes to a table; and where there are several, once more to the new one.
    let copies = list.logs.count > 1 ? 2 : 1
    try files.reserve(256 << 10 + copies * files.size(of: list.logs) + files.size(of: list.manifests))
    let expected = state.metadata
    try handleLock.exchange {
      monitor.expectNewManifest()
      let handle = try Self.open(files, paths, writeBufferSize, durability, mayCreate: false)
      try monitor.begin()
      // Before anybody reads from it: what has lost batches is closed again (rule F2).
      guard try Self.readMetadata(handle, isNew: expected == LevelDBMetadata()) == expected else {
        throw StorageError(.corrupted, "The LevelDB database in \(path) has lost its last batches.")
      }
      return handle
    }
    state.directorySync = try LevelDBDirectorySync(syncing: files)
    state.isBroken = false
  }
}
