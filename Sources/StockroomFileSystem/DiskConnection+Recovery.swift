import StockroomCore

/// How a transaction in the journal is brought to its end, by the engine that began it or, after a crash, by
/// whichever has the lock next.
///
/// Steps that create files come first: they are the ones that can fail for want of room, and until the last of
/// them is done nothing has been lost that could not be put back. From then on the only way is forward. Every
/// step leaves a trace by which it is known to be done: a staged file is no longer in its place, and what is to
/// be removed is not removed if it was created later (``Transaction/boundary``). So a transaction that reappears
/// in the journal, because its end was not synced, does no harm.
extension DiskConnection {
  /// Completes what a process that died has left in the journal. Needs the lock.
  func completePending() throws {
    if let transaction = try journal.read() {
      do {
        return try complete(transaction, isReplay: true)
      } catch {
        // That there is no room for it is an answer, too: nobody was told that it had been done.
        if try journal.read() == nil { return }
        throw error
      }
    }
    var contents = try state.read()
    guard !contents.isStable else { return }
    contents.batchVersion += contents.batchVersion & 1
    contents.version += contents.version & 1
    try state.write(contents)
  }

  /// Does all of the transaction or, if there is no room for it, none.
  ///
  /// If it throws for another reason, the transaction stays in the journal, and readers stay locked out until
  /// an engine has succeeded in completing it.
  ///
  /// - Parameter isReplay: Whether some of it may have been done already, and written over by others since.
  func complete(_ transaction: Transaction, isReplay: Bool) throws {
    try setUnstable(true)
    do {
      try create(transaction)
    } catch {
      try undo(transaction)
      throw error
    }
    let names = try finish(transaction, isReplay: isReplay)
    try setUnstable(false)
    if durability == .full { try synchronizeDirectories(of: names) }
    try journal.end()
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

  private func create(_ transaction: Transaction) throws {
    for case .create(let key, let number) in transaction.steps {
      try moveIn(StagedName(boundary: transaction.boundary, number: number), to: FileName(key))
    }
  }

  /// Takes back what ``create(_:)`` has done. The journal is emptied first, then the files are removed: if the
  /// machine dies in between, the transaction is still whole.
  private func undo(_ transaction: Transaction) throws {
    var names: [FileName] = []
    for case .create(let key, let number) in transaction.steps {
      let staged = StagedName(boundary: transaction.boundary, number: number)
      let name = FileName(key)
      if try staging.contains(staged) { continue }
      try entries.moveOut(name, to: staged, in: staging.directory)
      names.append(name)
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
    for name in names { try sidecars?.remove(name) }
  }

  /// Does everything that ``create(_:)`` has not. Returns the names that it changed.
  private func finish(_ transaction: Transaction, isReplay: Bool) throws -> [FileName] {
    var names: [FileName] = []
    func isLater(_ name: FileName) throws -> Bool {
      guard isReplay, let sequence = try recordedSequence(of: name) else { return false }
      return sequence > transaction.boundary
    }
    for step in transaction.steps {
      switch step {
      case .create(let key, _): names.append(FileName(key))
      case .replace(let key, let number):
        let name = FileName(key)
        try moveIn(StagedName(boundary: transaction.boundary, number: number), to: name)
        names.append(name)
      case .remove(let key):
        let name = FileName(key)
        if try !isLater(name) { try removeEntry(name) }
        names.append(name)
      case .removeAll:
        var all: [FileName] = []
        try entries.forEachKey { if let key = CacheKey(utf8: $0) { all.append(FileName(key)) } }
        let written = Set(names)
        for name in all where try !written.contains(name) && !isLater(name) { try removeEntry(name) }
        names += all
      }
    }
    return names
  }
}
