import StockroomCore

/// Completes or undoes a transaction in the journal, either by the engine that began it or, after a crash, by
/// the next holder of the lock.
///
/// The system may refuse any step, for lack of space or because of a file that must not change. So nothing is lost before the
/// last step is done: files that a step replaces or removes are moved to ``undo``. When a step fails, all completed steps are
/// undone, which needs no space: directories that have become empty stay until the outcome is known. Only files for which there
/// is no space are removed permanently, after all other steps. Before that, the journal records that the transaction can no
/// longer be undone; if a check shows that the system would refuse one of these removals, none of them is made.
///
/// It can always be determined whether a step has been done: its staged file is no longer in `staging`, or the entry to remove is
/// absent or was created later (``Transaction/boundary``), in which case it is not removed. So a transaction that reappears in
/// the journal, because its end was not synced, is harmless. It has no steps left to do, which distinguishes it from one that may
/// be undone.
extension DiskConnection {
  /// Completes or undoes the transaction that a process that died has left in the journal, and notifies
  /// subscribers, which are not notified otherwise. Needs the lock.
  ///
  /// - Parameter synchronize: Syncs the journal, before any part of a transaction in it is done.
  func completePending(
    synchronize: (FileDescriptor) throws -> Void = { try $0.synchronize() }
  ) throws {
    if try hasCompletedPending(synchronize) { feed.noteRecovery() }
  }

  /// Whether there was a transaction, or a write that had not ended.
  private func hasCompletedPending(_ synchronize: (FileDescriptor) throws -> Void) throws -> Bool {
    if let transaction = try journal.read() {
      // Its process may have died between writing and syncing it. If the machine crashes during the following
      // steps, the journal on the disk must be the same as here, or half of the transaction would remain.
      try synchronize(journal.file)
      do {
        try transaction.isAborted
          ? rollBack(transaction, synchronizeDirectories) : complete(transaction, isReplay: true)
      } catch {
        // If the transaction was undone instead, that is a valid outcome, too, since it was not acknowledged.
        if try transaction.isAborted || journal.read() != nil { throw error }
      }
      return true
    }
    var contents = try state.read()
    if contents.isStable { return false }
    contents.batchVersion += contents.batchVersion & 1
    contents.version += contents.version & 1
    do {
      try state.write(contents)
    } catch {
      // No transaction is half done, regardless of the state, and reads with the lock are correct. The next
      // holder of the lock retries.
      return false
    }
    return true
  }

  /// Makes all of the transaction or none: if a step fails, the completed steps are undone.
  ///
  /// If the completed steps cannot be undone either, the transaction stays in the journal, and readers remain blocked until an
  /// engine has undone it. If the journal cannot even record that the transaction is to be undone, this engine does nothing more:
  /// the transaction, which is on the disk with all its files, is completed when the place is opened again, or undone if a step
  /// is refused then, too.
  ///
  /// - Parameters:
  ///   - isReplay: Whether some of it may have been done already, and overwritten by others since then.
  ///   - synchronize: Syncs the names, by ``synchronizeDirectories(of:)`` if nil.
  /// - Throws: `StorageError`; ``AfterCommitError`` if it may still be made, so that it must not be retried.
  func complete(
    _ transaction: Transaction, isReplay: Bool, synchronize: (([FileName]) throws -> Void)? = nil
  ) throws {
    let synchronize = synchronize ?? synchronizeDirectories
    var isIrreversible = transaction.isIrreversible
    var movedOut: [FileName] = []
    do {
      // If this fails, the transaction must be undone as well, since it is in the journal already.
      try setUnstable(true)
      let names = try perform(transaction, isReplay: isReplay, &isIrreversible, &movedOut)
      // Synced at every durability: otherwise the end of the journal could reach the disk while only a part of the batch is
      // there. Synced before the batch can be read, since it is undone if the sync fails.
      try synchronize(names)
      try setUnstable(false)
    } catch {
      if isReplay, try !isUnfinished(transaction) { throw error }
      // The next holder of the lock completes it.
      if isIrreversible { throw isReplay ? error : AfterCommitError(error) }
      // The cause of the failed step may make this check fail, too. It counts as passed then: all files that have been moved out
      // are in ``undo``, except in a replay, after an attempt that may have been irreversible.
      let isReversible =
        try isReplay ? isReversible(transaction) : (try? movedOut.allSatisfy(isInUndo)) ?? true
      guard isReversible else { throw isReplay ? error : AfterCommitError(error) }
      do {
        try journal.abort()
      } catch let failure {
        if isReplay { throw failure }
        // The next holder of the lock makes the batch if the journal still has it, which it may if it cannot be read.
        if case .success(let found) = Result(catching: { try journal.read() }), found?.isAborted ?? true {
          throw failure
        }
        fail(with: failure)
        throw AfterCommitError(StorageError.undecidedBatch(entries.path, failure))
      }
      try rollBack(transaction, synchronize)
      throw error
    }
    do {
      try emptyUndo()
      try journal.end()
    } catch  where !isReplay {
      // The transaction has been made. The next holder of the lock finds it in the journal, and first removes the remaining
      // files.
    }
  }

  func setUnstable(_ isUnstable: Bool) throws {
    var contents = try state.read()
    if isUnstable {
      contents.batchVersion |= 1
      contents.version |= 1
    } else {
      contents.batchVersion += contents.batchVersion & 1
      contents.version += contents.version & 1
    }
    try state.write(contents)
  }

  /// Removes the files that the last batch has replaced and removed, and the directories that are empty
  /// without them.
  func emptyUndo() throws {
    for (directory, origin) in [(undo, entries), (undoSidecars, sidecars)]
      as [(EntryDirectory?, EntryDirectory?)]
    {
      guard let directory else { continue }
      var names: [FileName] = []
      try directory.forEachKey { if let key = CacheKey(utf8: $0) { names.append(FileName(key)) } }
      for name in names {
        origin?.removeEmptyDirectories(of: name)
        try directory.remove(name)
      }
    }
  }
}

// MARK: - Forward

extension DiskConnection {
  /// Performs every step that has not been done. Returns the names of all entries that the transaction changes.
  ///
  /// Steps that create files come first, since they are the ones that can fail for lack of space.
  ///
  /// - Parameters:
  ///   - isIrreversible: Becomes true if there was no space to keep removed files.
  ///   - movedOut: Receives the entries that have been moved to ``undo``, without those that others have removed.
  private func perform(
    _ transaction: Transaction, isReplay: Bool, _ isIrreversible: inout Bool, _ movedOut: inout [FileName]
  ) throws -> [FileName] {
    var names: [FileName] = []
    var withoutRoom: [FileName] = []
    for case .create(let key, let number) in transaction.steps {
      let (name, staged) = (FileName(key), StagedName(boundary: transaction.boundary, number: number))
      names.append(name)
      if try !isReplay || staging.contains(staged) { try moveIn(staged, to: name) }
    }
    for case .replace(let key, let number) in transaction.steps {
      let (name, staged) = (FileName(key), StagedName(boundary: transaction.boundary, number: number))
      names.append(name)
      if try isReplay && !staging.contains(staged) { continue }
      // Metadata that have already been moved in are the new ones.
      let isMoved = try moveOut(name, withMetadata: !isReplay || staging.contains(staged.metadata))
      if isMoved { movedOut.append(name) }
      try moveIn(staged, to: name, keepsDirectories: true)
    }
    for case .remove(let key) in transaction.steps {
      let name = FileName(key)
      names.append(name)
      if try !isReplay || !isLater(name, transaction) {
        try moveOut(name, noting: &movedOut, or: &withoutRoom)
      }
    }
    if transaction.removesAll {
      let written = Set(names)
      for name in try entryNames() where !written.contains(name) {
        names.append(name)
        if try !isReplay || !isLater(name, transaction) {
          try moveOut(name, noting: &movedOut, or: &withoutRoom)
        }
      }
    }
    // Removed last, since nothing could restore these files if another step were refused.
    if withoutRoom.isEmpty { return names }
    if !transaction.isIrreversible {
      for name in withoutRoom { try entries.checkRemovable(name) }
      try synchronizeDirectories(of: names)
      try journal.forbidUndoing()
    }
    for name in withoutRoom {
      try entries.remove(name)
      isIrreversible = true
      try sidecars?.remove(name)
    }
    return names
  }

  /// Moves the entry to ``undo``. False if it is absent.
  private func moveOut(_ name: FileName, withMetadata: Bool = true) throws -> Bool {
    do {
      let isMoved = try entries.move(name, to: undo, keepsDirectories: true)
      if withMetadata, let undoSidecars { try sidecars?.move(name, to: undoSidecars, keepsDirectories: true) }
      return isMoved
    } catch {
      for directory in [undo, undoSidecars] { directory?.removeEmptyDirectories(of: name) }
      throw error
    }
  }

  /// On a full disk there may be no space for another name. Removing must work anyway, as it frees space.
  private func moveOut(
    _ name: FileName, noting movedOut: inout [FileName], or withoutRoom: inout [FileName]
  ) throws {
    do {
      if try moveOut(name) { movedOut.append(name) }
    } catch let error as StorageError where error.code == .diskFull {
      withoutRoom.append(name)
    }
  }

  func entryNames() throws -> [FileName] {
    var names: [FileName] = []
    try entries.forEachKey { if let key = CacheKey(utf8: $0) { names.append(FileName(key)) } }
    return names
  }

  /// Whether the entry has been created since the transaction.
  ///
  /// A file without a sequence number counts as created later if both its change time and its modification time are later: the
  /// permissions or names of an older file may have changed since, and a copy may have the modification time of the original.
  /// This is wrong only if the clock has been set.
  ///
  /// A file that another program has copied from another engine's directory may have a number that has not been used here yet,
  /// and does not count as created later. It keeps its number when an engine here overwrites it, so that even this write is not
  /// protected from a batch that reappears in the journal after a crash of the machine.
  func isLater(_ name: FileName, _ transaction: Transaction) throws -> Bool {
    guard let sequence = try recordedSequence(of: name) else {
      guard let status = try entries.status(of: name) else { return false }
      return min(status.changed, status.modified).nanoseconds > Int64(clamping: transaction.boundary)
    }
    return try sequence > transaction.boundary && sequence <= state.read().reservedSequence
  }
}

extension Transaction {
  fileprivate var removesAll: Bool {
    steps.contains { if case .removeAll = $0 { true } else { false } }
  }
}
