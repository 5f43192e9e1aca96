#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension DiskConnection {
  /// Commits the requests, each completely or not at all.
  ///
  /// Requests of one operation need no journal, since renaming and removing a file is atomic; they share the
  /// syncs. If there is any other request, the whole group is one transaction.
  ///
  /// - Throws: `StorageError`; ``AfterCommitError`` if the failure comes after the changes, for example because the place was
  ///   replaced in the meantime (rule C6).
  func commit(_ requests: [DiskRequest]) throws {
    let pending = requests.filter { !$0.isDone.load(ordering: .relaxed) }
    guard !pending.isEmpty else { return }
    var isCommitted = false
    do {
      try commit(pending, noting: &isCommitted)
    } catch let error where isCommitted {
      // Retrying the requests would apply them twice.
      throw AfterCommitError(error)
    }
  }

  /// - Parameter isCommitted: Becomes true once all of the changes have been made.
  private func commit(_ pending: [DiskRequest], noting isCommitted: inout Bool) throws {
    try withLock {
      let operations = pending.map(\.request).operations(reading: DiskEntryReader(connection: self), nil)
      if operations.allSatisfy(\.isEmpty) { return }
      guard access == .readWrite else {
        throw StorageError(.readOnly, "\(entries.root.path) was opened as read-only.")
      }
      let commit = try Commit(
        self, ChangeSet(pending, operations), isJournaled: isJournalNeeded(for: pending, operations))
      let announcement = feed.announce(pending.map(\.request), operations) { try state.commitNumber() + 1 }
      // Published even if the commit fails: some requests may have taken effect, and those are not retried.
      defer { feed.publish(announcement) }
      try index.update(
        of: self,
        with: {
          try commit.run()
          isCommitted = true
        }, changes: commit.indexChanges)
    }
  }

  private func isJournalNeeded(for requests: [DiskRequest], _ operations: [[StorageOperation]]) -> Bool {
    // A transaction may have read the changes of another request in the group, so they must succeed or fail together.
    if requests.count > 1, requests.contains(where: { $0.request.knownOperations == nil }) { return true }
    return !operations.allSatisfy(\.isSimple)
  }
}

extension [StorageOperation] {
  /// Whether one rename or removal is sufficient.
  fileprivate var isSimple: Bool {
    guard count == 1, let operation = first else { return isEmpty }
    if case .removeAll = operation { return false }
    return true
  }
}

/// A group that is being committed. Exists only while its engine holds the lock.
private struct Commit {
  /// A change that has an effect.
  private struct Step {
    let change: ChangeSet.Change
    /// Whether the entry currently exists.
    let exists: Bool
    /// The new metadata of the entry. Nil to remove it.
    let metadata: EntryMetadata?
    let staged: StagedName
  }

  private let connection: DiskConnection
  private let isJournaled: Bool
  private let removesAll: Bool
  private let boundary: UInt64
  private let steps: [Step]
  /// Entries that are to be removed and are absent. Another engine may have removed them without a sync (rule W6).
  private let absent: [FileName]

  init(_ connection: DiskConnection, _ changes: ChangeSet, isJournaled: Bool) throws {
    self.connection = connection
    self.isJournaled = isJournaled
    removesAll = changes.removesAll
    let now = Timestamp.now()
    let boundary = try connection.reserveSequenceNumbers(changes.changes.count, at: now)
    self.boundary = boundary

    var sequence = boundary
    var steps: [Step] = []
    var absent: [FileName] = []
    for change in changes.changes {
      let existing = change.data == nil || change.isRenewed ? nil : try connection.metadata(of: change.name)
      let exists = try existing != nil || connection.entries.status(of: change.name) != nil
      var metadata: EntryMetadata?
      if let data = change.data {
        if existing == nil { sequence += 1 }
        var header = existing?.header ?? EntryHeader(createdAt: now, sequence: sequence)
        header.overwrite(at: now)
        header.replaceTimes(by: change.times)
        metadata = EntryMetadata(header: header, size: data.count)
      } else if !exists || (removesAll && isJournaled) {
        if !exists, connection.durability == .full { absent.append(change.name) }
        continue
      }
      steps.append(
        Step(
          change: change, exists: exists, metadata: metadata,
          staged: StagedName(boundary: boundary, number: steps.count)))
    }
    self.steps = steps
    self.absent = absent
  }

  func run() throws {
    do {
      try stage()
      // A journaled batch syncs the journal anyway.
      if !isJournaled, !steps.isEmpty, connection.durability == .full {
        try connection.synchronizeEndOfBatches()
      }
    } catch {
      removeStaged()
      throw error
    }
    try isJournaled ? applyAsOne() : applyEach()
  }

  // MARK: Staging

  private func stage() throws {
    // Regardless of the durability, an entry must not have a name without its contents after the machine has
    // crashed.
    let count = steps.count { $0.metadata != nil }
    let isSyncedAtOnce = count > DiskConnection.mostSingleSyncs && SystemCalls.canSynchronizeFileSystem
    for step in steps {
      guard let data = step.change.data, let metadata = step.metadata else { continue }
      try connection.stage(data, metadata, as: step.staged, synchronized: !isSyncedAtOnce)
    }
    if isSyncedAtOnce {
      try connection.synchronizeFileSystem()
    } else if isJournaled, count > 0 {
      // The journal relies on the names. Without a journal, they are synced no later than the names that they
      // become.
      try connection.staging.directory.synchronizeNames()
    }
  }

  /// The effect of the commit on the set of keys.
  var indexChanges: KeyIndex.Changes {
    KeyIndex.Changes(
      removesAll: removesAll && isJournaled,
      keys: steps.map { ($0.change.key, isPresent: $0.metadata != nil) })
  }

  private func removeStaged() {
    for step in steps where step.metadata != nil {
      connection.staging.remove(step.staged)
      if !connection.usesAttributes { connection.staging.remove(step.staged.metadata) }
    }
  }

  // MARK: Applying

  private func applyAsOne() throws {
    var transaction = Transaction(boundary: boundary)
    transaction.steps = steps.map { step in
      guard step.metadata != nil else { return .remove(step.change.key) }
      return step.exists
        ? .replace(step.change.key, staged: step.staged.number)
        : .create(step.change.key, staged: step.staged.number)
    }
    if removesAll { transaction.steps.append(.removeAll) }
    do {
      try connection.checkPlaceOfBatches()
    } catch {
      removeStaged()
      throw error
    }
    do {
      try connection.journal.begin(transaction)
    } catch {
      // While the transaction may be in the journal, it may be completed, and needs its files.
      do {
        try connection.journal.endSynchronously()
      } catch let failure {
        if case .success(nil) = Result(catching: { try connection.journal.read() }) {
          connection.noteUnsyncedEnd()
          throw error
        }
        // The next engine completes it, so this one must not do it again.
        connection.fail(with: failure)
        throw AfterCommitError(StorageError.undecidedBatch(connection.entries.path, failure))
      }
      removeStaged()
      throw error
    }
    try connection.complete(
      transaction, isReplay: false,
      synchronize: { [connection, absent] in try connection.synchronizeDirectories(of: $0 + absent) })
  }

  /// Does each step separately. A failing step does not prevent the others: its request fails, and the requests of the completed
  /// steps must not be repeated when the group is retried one by one.
  private func applyEach() throws {
    var done: [Step] = []
    let result: Result<Void, any Error> = Result {
      try connection.withOddVersion {
        var failure: (any Error)?
        for step in steps {
          do {
            try apply(step)
            done.append(step)
          } catch {
            failure = error
          }
        }
        if let failure { throw failure }
      }
    }
    if case .failure = result { removeStaged() }
    if connection.durability == .full {
      let names = done.map(\.change.name) + absent
      try connection.failingPermanently { try connection.synchronizeDirectories(of: names) }
    }
    // If all steps have succeeded, `withLock` checks the place at its end.
    if case .success = result { return }
    // Changes that an engine opened later would not find are not acknowledged (rule C6), and completed ones are not retried.
    // Failed requests of the group get this error, too.
    try AfterCommitError.marking { try connection.checkPlace() }
    for step in done {
      for request in step.change.requests { request.isDone.store(true, ordering: .relaxed) }
    }
    try result.get()
  }

  private func apply(_ step: Step) throws {
    if step.metadata != nil {
      do {
        try connection.moveIn(step.staged, to: step.change.name)
      } catch {
        // The metadata may have been moved already, and would belong to no entry.
        if !step.exists { try connection.sidecars?.remove(step.change.name) }
        throw error
      }
    } else {
      try connection.removeEntry(step.change.name)
    }
  }
}

// MARK: - Steps of a commit

extension DiskConnection {
  /// With more files than this, one sync of the whole file system costs less than one sync for each file.
  static let mostSingleSyncs = 16

  func stage(
    _ data: Data, _ metadata: EntryMetadata, as name: StagedName, synchronized: Bool
  ) throws {
    if !usesAttributes {
      try staging.write(name.metadata, synchronized: synchronized) { file in
        try metadata.withEncoding { try file.write($0) }
      }
    }
    try staging.write(name, synchronized: synchronized) { file in
      try data.withUnsafeBytes { try file.write($0) }
      if usesAttributes { try MetadataAttribute.write(metadata, to: file) }
      try file.setModificationTime(metadata.header.updatedAt)
    }
  }

  /// Moves a staged entry to its place, replacing an existing one.
  ///
  /// - Parameter keepsDirectories: Whether empty directories remain if this fails.
  func moveIn(_ staged: StagedName, to name: FileName, keepsDirectories: Bool = false) throws {
    let directory = staging.directory
    if !usesAttributes {
      try sidecars?.moveIn(staged.metadata, from: directory, to: name, keepsDirectories: keepsDirectories)
    }
    guard try entries.moveIn(staged, from: directory, to: name, keepsDirectories: keepsDirectories) else {
      throw StorageError(
        .io, "The file that was to become \(entries.path(of: name)) has been removed by another program.")
    }
  }

  func removeEntry(_ name: FileName) throws {
    try entries.remove(name)
    try sidecars?.remove(name)
  }

  /// Makes the version odd while the work runs, so that listings retry, and even again afterwards, also if the work throws.
  /// Once the work has begun, it throws only the work's error, since completed changes cannot be reverted.
  func withOddVersion(_ work: () throws -> Void) throws {
    var contents = try state.read()
    contents.version |= 1
    try state.write(contents)
    let result = Result { try work() }
    contents.version += 1
    do {
      try state.write(contents)
    } catch {
      // The next holder of the lock finds the state unstable and corrects it first. Until then, reads take
      // the lock, and subscribers in other processes find no commit.
      feed.noteRecovery()
    }
    try result.get()
  }
}
