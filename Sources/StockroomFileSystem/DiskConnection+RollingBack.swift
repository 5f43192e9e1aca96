import StockroomCore

// Whether a transaction in the journal can be undone, and how.

extension DiskConnection {
  /// Whether a step of the transaction has not been done. The transaction has not been acknowledged then.
  func isUnfinished(_ transaction: Transaction) throws -> Bool {
    for step in transaction.steps {
      switch step {
      case .create(_, let number), .replace(_, let number):
        if try staging.contains(StagedName(boundary: transaction.boundary, number: number)) { return true }
      case .remove(let key):
        let name = FileName(key)
        if try entries.status(of: name) != nil, try !isLater(name, transaction) { return true }
      case .removeAll:
        // Files that other programs have put there in the meantime do not count.
        let written = transaction.writtenNames
        for name in try entryNames() where !written.contains(name) {
          if let sequence = try recordedSequence(of: name), sequence <= transaction.boundary { return true }
        }
      }
    }
    return false
  }

  /// Whether all files that are needed to undo the transaction exist.
  func isReversible(_ transaction: Transaction) throws -> Bool {
    for step in transaction.steps {
      switch step {
      case .replace(let key, let number):
        if try staging.contains(StagedName(boundary: transaction.boundary, number: number)) { continue }
        if try !isInUndo(FileName(key)) { return false }
      case .remove(let key):
        let name = FileName(key)
        if try entries.status(of: name) == nil, try !isInUndo(name) { return false }
      case .create, .removeAll: break
      }
    }
    return true
  }

  func isInUndo(_ name: FileName) throws -> Bool { try undo.status(of: name) != nil }

  /// Undoes the completed steps of the transaction, then removes it from the journal. If that fails, or the
  /// machine crashes in the meantime, it can be repeated. If the sync failed, however, this engine must not
  /// repeat it: another sync may succeed anyway, since systems report such a failure only once.
  func rollBack(_ transaction: Transaction, _ synchronize: ([FileName]) throws -> Void) throws {
    try setUnstable(true)
    // A name whose file is not moved need not be synced, and its directory may be one that cannot be opened. All names are synced
    // if an earlier attempt may have moved files.
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
