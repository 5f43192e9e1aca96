import StockroomCore

/// How a transaction in the journal is brought to its end, by the engine that began it or, after a crash, by
/// whichever has the lock next.
///
/// What the system may refuse, for want of room or because of a file that must not change, it can refuse at any step. So
/// nothing is lost before the last of them is done: what a step replaces or removes is moved to ``undo``. When a step
/// fails, all that was done is undone, which needs no room: directories that have become empty stay until the outcome is known.
/// Only what there is no room to keep is removed for good, after everything else has been done. Before that it is written down that the
/// transaction cannot be undone any more, and none of it happens if it can be told that the system would refuse a removal.
///
/// Every step leaves a trace by which it is known to be done: a staged file is no longer in its place, and what is to
/// be removed is not removed if it was created later (``Transaction/boundary``). So a transaction that reappears
/// in the journal, because its end was not synced, does no harm. That nothing is left to be done of it tells it from one
/// that may be undone.
extension DiskConnection {
  /// Completes or undoes what a process that died has left in the journal, and tells subscribers, whom nobody else tells. Needs the lock.
  ///
  /// - Parameter synchronize: Puts the journal on the disk, before anything of a transaction that is in it is done.
  func completePending(
    synchronize: (FileDescriptor) throws -> Void = { try $0.synchronize() }
  ) throws {
    if try hasCompletedPending(synchronize) { feed.noteRecovery() }
  }

  /// Whether there was anything to do.
  private func hasCompletedPending(_ synchronize: (FileDescriptor) throws -> Void) throws -> Bool {
    if let transaction = try journal.read() {
      // Its process may have died between writing and syncing it. Should the machine die in the middle of what follows, the journal must say
      // on the disk what it says here, or half of the transaction would stay.
      try synchronize(journal.file)
      do {
        try transaction.isAborted
          ? rollBack(transaction, synchronizeDirectories) : complete(transaction, isReplay: true)
      } catch {
        // That it cannot be done is a result, too: it has not been acknowledged.
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
      // Nothing is half done, whatever the state says, and reads with the lock are right. The next holder of the lock tries again.
      return false
    }
    return true
  }

  /// Does all of the transaction or none. If it throws, none of it has been done.
  ///
  /// If what has been done cannot be undone either, the transaction stays in the journal, and readers stay locked out until an engine
  /// has undone it. If not even that can be written down, this engine does nothing more: the transaction, which is on the disk with all
  /// that it needs, is completed when the place is opened again, or undone if a step is refused then, too.
  ///
  /// - Parameters:
  ///   - isReplay: Whether some of it may have been done already, and written over by others since.
  ///   - synchronize: Puts the names on the disk, ``synchronizeDirectories(of:)`` if nil.
  /// - Throws: `StorageError`; ``AfterCommitError`` if it may happen yet, so that it must not be tried again.
  func complete(
    _ transaction: Transaction, isReplay: Bool, synchronize: (([FileName]) throws -> Void)? = nil
  ) throws {
    let synchronize = synchronize ?? synchronizeDirectories
    var isIrreversible = transaction.isIrreversible
    do {
      // If this fails, the transaction is in the journal, and must not be found there later.
      try setUnstable(true)
      let names = try perform(transaction, isReplay: isReplay, &isIrreversible)
      // The journal may reach the disk first, at every durability, and forget what is only half there. Before anybody reads the batch,
      // since it is undone if this fails.
      try synchronize(names)
      try setUnstable(false)
    } catch {
      if isReplay, try !isUnfinished(transaction) { throw error }
      // Who has the lock next completes it.
      if isIrreversible { throw isReplay ? error : AfterCommitError(error) }
      // What made a step fail may make the look fail, too. Unless this is a replay, after an attempt that may have been irreversible,
      // all that has been moved out is in ``undo``.
      guard try isReplay ? isReversible(transaction) : (try? isReversible(transaction)) ?? true else {
        throw error
      }
      do {
        try journal.abort()
      } catch let failure {
        guard !isReplay, let found = try journal.read(), !found.isAborted else { throw failure }
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
      // It has happened. The next holder of the lock finds it in the journal, and cleans up before anything else.
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

  /// Removes what the last batch has replaced and removed, and the directories that are empty without it.
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
  /// Does every step that has not been done. Returns the names that the transaction is about.
  ///
  /// Those that create files come first, since they are the ones that can fail for want of room.
  ///
  /// - Parameter isIrreversible: Becomes true if there was no room to keep what has been removed.
  private func perform(
    _ transaction: Transaction, isReplay: Bool, _ isIrreversible: inout Bool
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
      // Metadata that have been moved in already are the new ones.
      try moveOut(name, withMetadata: !isReplay || staging.contains(staged.metadata))
      try moveIn(staged, to: name, keepsDirectories: true)
    }
    for case .remove(let key) in transaction.steps {
      let name = FileName(key)
      names.append(name)
      if try !isReplay || !isLater(name, transaction) { try moveOut(name, orNote: &withoutRoom) }
    }
    if transaction.removesAll {
      let written = Set(names)
      for name in try entryNames() where !written.contains(name) {
        names.append(name)
        if try !isReplay || !isLater(name, transaction) { try moveOut(name, orNote: &withoutRoom) }
      }
    }
    // Last, as nothing brings them back if another step is refused.
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

  /// Moves the entry to where ``undo`` keeps it. Does nothing if it is absent.
  private func moveOut(_ name: FileName, withMetadata: Bool = true) throws {
    do {
      try entries.move(name, to: undo, keepsDirectories: true)
      if withMetadata, let undoSidecars { try sidecars?.move(name, to: undoSidecars, keepsDirectories: true) }
    } catch {
      for directory in [undo, undoSidecars] { directory?.removeEmptyDirectories(of: name) }
      throw error
    }
  }

  /// On a full disk there may be no room for another name. Removing must work all the same, as it makes room.
  private func moveOut(_ name: FileName, orNote withoutRoom: inout [FileName]) throws {
    do {
      try moveOut(name)
    } catch let error as StorageError where error.code == .diskFull {
      withoutRoom.append(name)
    }
  }

  private func entryNames() throws -> [FileName] {
    var names: [FileName] = []
    try entries.forEachKey { if let key = CacheKey(utf8: $0) { names.append(FileName(key)) } }
    return names
  }

  /// Whether an engine has created the entry since the transaction. One that another program has put there, out of another
  /// engine's directory, may have a number that has not been given out here yet. Such an entry keeps its number when an engine here
  /// overwrites it, so that not even this write is spared by a batch that reappears in the journal after the machine died.
  private func isLater(_ name: FileName, _ transaction: Transaction) throws -> Bool {
    guard let sequence = try recordedSequence(of: name), sequence > transaction.boundary else { return false }
    return try sequence <= state.read().reservedSequence
  }
}

// MARK: - Back

extension DiskConnection {
  /// Whether a step of the transaction has not been done: it has not been acknowledged, then.
  private func isUnfinished(_ transaction: Transaction) throws -> Bool {
    for step in transaction.steps {
      switch step {
      case .create(_, let number), .replace(_, let number):
        if try staging.contains(StagedName(boundary: transaction.boundary, number: number)) { return true }
      case .remove(let key):
        let name = FileName(key)
        if try entries.status(of: name) != nil, try !isLater(name, transaction) { return true }
      case .removeAll:
        // Files that other programs have put there since say nothing.
        let written = transaction.writtenNames
        for name in try entryNames() where !written.contains(name) {
          if let sequence = try recordedSequence(of: name), sequence <= transaction.boundary { return true }
        }
      }
    }
    return false
  }

  /// Whether everything is there with which the transaction can be undone.
  private func isReversible(_ transaction: Transaction) throws -> Bool {
    for step in transaction.steps {
      switch step {
      case .replace(let key, let number):
        if try staging.contains(StagedName(boundary: transaction.boundary, number: number)) { continue }
        if try undo.status(of: FileName(key)) == nil { return false }
      case .remove(let key):
        let name = FileName(key)
        if try entries.status(of: name) == nil, try undo.status(of: name) == nil { return false }
      case .create, .removeAll: break
      }
    }
    return true
  }

  /// Takes back what has been done of the transaction, then removes it from the journal. If that fails, or the machine
  /// dies meanwhile, it can be done again; but if the disk has not got it, not by this engine: another sync may succeed all the same, since
  /// systems report such a failure once.
  private func rollBack(_ transaction: Transaction, _ synchronize: ([FileName]) throws -> Void) throws {
    try setUnstable(true)
    // Where nothing is moved there is nothing to sync, and the directory may be one that cannot be opened. An attempt before
    // this one may have moved what is found in its place now.
    let syncsAll = transaction.isAborted || sidecars != nil
    var names: [FileName] = []
    for step in transaction.steps {
      switch step {
      case .create(let key, let number), .replace(let key, let number):
        let (name, staged) = (FileName(key), StagedName(boundary: transaction.boundary, number: number))
        let isReplacement = if case .replace = step { true } else { false }
        var isMoved = false
        if try !staging.contains(staged) {
          isMoved = try entries.moveOut(
            name, to: staged, in: staging.directory, keepsDirectories: isReplacement)
        }
        if !isReplacement {
          try sidecars?.remove(name)
        } else if try moveBack(name) {
          isMoved = true
        }
        if isMoved || syncsAll { names.append(name) }
      case .remove(let key):
        let name = FileName(key)
        if try moveBack(name) || syncsAll { names.append(name) }
      case .removeAll:
        var removed: [FileName] = []
        try undo.forEachKey { if let key = CacheKey(utf8: $0) { removed.append(FileName(key)) } }
        for name in removed { try moveBack(name) }
        names += removed
      }
    }
    do {
      try synchronize(names)
    } catch {
      fail(with: error)
      throw error
    }
    try journal.endSynchronously()
    try setUnstable(false)
    for step in transaction.steps {
      switch step {
      case .create(_, let number), .replace(_, let number):
        let staged = StagedName(boundary: transaction.boundary, number: number)
        staging.remove(staged)
        staging.remove(staged.metadata)
      case .remove, .removeAll: break
      }
    }
  }

  /// Moves the entry back from ``undo``. False if it is not there.
  @discardableResult
  private func moveBack(_ name: FileName) throws -> Bool {
    let isMoved = try undo.move(name, to: entries)
    if let sidecars { try undoSidecars?.move(name, to: sidecars) }
    return isMoved
  }
}

extension Transaction {
  fileprivate var removesAll: Bool {
    steps.contains { if case .removeAll = $0 { true } else { false } }
  }

  fileprivate var writtenNames: Set<FileName> {
    Set(
      steps.compactMap { step in
        switch step {
        case .create(let key, _), .replace(let key, _): FileName(key)
        case .remove, .removeAll: nil
        }
      })
  }
}
