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
    var ledger: Ledger
    var names: LevelDBNames
    /// A write has failed. LevelDB's log may end in the middle of a batch, and it may refuse all further ones.
    var isBroken = false
    var isClosed = false
    var place: LevelDBPlace?
  }

  let path: String
  private let durability: Durability
  private let writeBufferSize: Int
  private let lease: LevelDBLease
  /// Touched by the engine's own thread only, and by the last one to hold the engine.
  private let state: Guarded<State>

  init(directory: FileManager.Directory, durability: Durability) throws {
    let place = try LevelDBPlace(below: directory)
    path = place.path
    self.durability = durability
    writeBufferSize = Self.writeBufferSize(at: place.path)
    let isNew = try Self.recover(place.path)
    let handle = try LevelDBHandle(path: path, writeBufferSize: writeBufferSize, durability: durability)
    let ledger = try Self.readLedger(handle, isNew: isNew)
    lease = LevelDBLease(handle)
    state = Guarded(State(ledger: ledger, names: try LevelDBNames(syncing: place.path), place: place))
  }

  /// Calls `body` with the open database. Suspends while a failed write is being mended.
  func read<Value>(_ body: (LevelDBHandle) throws -> Value) async throws -> Value {
    try await lease.withHandle(body)
  }

  /// Does the operations as one batch. On the engine's own thread: waits for the disk.
  func commit(_ operations: [[StorageOperation]]) throws {
    try state.withLock { state in
      if state.isBroken { try mend(&state) }
      var transaction = LevelDBTransaction(on: try lease.current.get(), ledger: state.ledger)
      try transaction.add(SortedBatch(joining: operations))
      var isVisible = false
      do {
        let ledger = try transaction.commit()
        isVisible = true
        if durability == .full { try state.names.synchronizeLog(in: path) }
        state.ledger = ledger
      } catch {
        state.isBroken = true
        try dropUnacknowledged(state.ledger)
        // Opened anew, LevelDB has forgotten it too.
        if isVisible { try mend(&state) }
        throw error
      }
    }
  }

  /// Gives the database up. Waits for a compaction and for the disk.
  func close() {
    state.withLock { state in
      guard !state.isClosed else { return }
      state.isClosed = true
      try? lease.exchange { throw StorageError(.closed, "The LevelDB database in \(path) has been closed.") }
      // Without a mark the next opening takes the same way as after a crash. Nothing is lost.
      try? leaveMark(state)
      state.place = nil
    }
  }

  private func leaveMark(_ state: State) throws {
    if state.isBroken { try dropUnacknowledged(state.ledger) }
    // The mark must not reach the disk before what it describes, and before what LevelDB has removed is gone.
    try LevelDBFiles.synchronize(path)
    if durability == .process {
      for log in try LevelDBFileList(in: path).logs { try LevelDBFiles.synchronize(path + "/" + log) }
    }
    try LevelDBClosingMark(describing: path).write(to: path)
  }
}

// Opening.
extension LevelDBConnection {
  /// Looks through the files before LevelDB does, which would take damage for a crash, or trap. Returns whether
  /// they may hold nothing at all.
  private static func recover(_ path: String) throws -> Bool {
    let files = try LevelDBFileList(in: path)
    let isMarked = LevelDBClosingMark.exists(in: path)
    if isMarked {
      try LevelDBClosingMark.verify(in: path)
    } else if files.current != nil {
      try LevelDBManifest.completeSwitch(in: path)
      try LevelDBManifest.dropUnfinished(in: path)
    }
    func isEmpty() throws -> Bool {
      try files.tables.isEmpty
        && files.logs.allSatisfy { try LevelDBFiles.size(of: path + "/" + $0) ?? 0 == 0 }
    }
    if files.current != nil {
      try LevelDBManifest(in: path).verifyTables(in: path)
    } else if try isMarked || !isEmpty() {
      // A crash while the database is being made leaves manifests and a log without batches, and nothing else.
      throw StorageError(.corrupted, "The LevelDB database in \(path) has lost its file CURRENT.")
    }
    if isMarked {
      try LevelDBClosingMark.remove(from: path)
    } else {
      for log in files.logs { try LevelDBLog.removeTornBatch(at: path + "/" + log) }
    }
    // What was cut off from a log may have been all that was in it.
    return try isEmpty()
  }

  private static func readLedger(_ handle: LevelDBHandle, isNew: Bool) throws -> Ledger {
    if let found = try handle.ledger() { return found }
    guard isNew else {
      throw StorageError(.corrupted, "The LevelDB database in \(handle.path) has lost its ledger.")
    }
    return Ledger()
  }

  /// On a small device the log must not take up a large part of it.
  private static func writeBufferSize(at path: String) -> Int {
    guard let size = FileManager.Directory.volumeSize(at: path) else { return 4 << 20 }
    return max(64 << 10, min(8 << 20, size / 64))
  }
}

// After a failed write.
extension LevelDBConnection {
  /// Makes sure that a batch which was not acknowledged does not come back when the log is read again (rule F1).
  private func dropUnacknowledged(_ ledger: Ledger) throws {
    for log in try LevelDBFileList(in: path).logs {
      try LevelDBLog.removeBatches(after: ledger.generation, at: path + "/" + log)
    }
  }

  /// Closes the database and opens it anew, which is the only way to make LevelDB write again.
  ///
  /// Opening needs room, so the database stays as it is, and can be read, until there is some.
  private func mend(_ state: inout State) throws {
    try dropUnacknowledged(state.ledger)
    let files = try LevelDBFileList(in: path)
    let needed = try (files.logs + files.manifests).reduce(256 << 10) {
      try $0 + (LevelDBFiles.size(of: path + "/" + $1) ?? 0)
    }
    try LevelDBFiles.reserve(needed, at: path + "/STOCKROOM.room")
    try lease.exchange {
      try LevelDBHandle(path: path, writeBufferSize: writeBufferSize, durability: durability)
    }
    state.names = try LevelDBNames(syncing: path)
    let ledger = try Self.readLedger(try lease.current.get(), isNew: state.ledger == Ledger())
    guard ledger == state.ledger else {
      throw StorageError(.corrupted, "The LevelDB database in \(path) has lost its last batches.")
    }
    state.isBroken = false
  }
}
