import StockroomCore

/// A copy of a place in another directory, which no other engine uses.
final class DiskCopy: Sendable {
  private let source: DiskConnection
  private let target: DiskConnection
  private let passes: EntryPasses
  /// The number of files that have been written.
  private let count = MutexProtected(0)

  init(of source: DiskConnection, to target: DiskConnection) {
    self.source = source
    self.target = target
    passes = EntryPasses(of: source)
  }

  /// Copies entries that differ from the copy, and removes those that are no longer in the place. If others
  /// write in the meantime, the copy contains some of their changes.
  func bringUpToDate(_ flag: CancellationFlag) throws {
    try count.withLock { count in
      try passes.run(flag) { key, data, header in
        let staged = StagedName(boundary: 0, number: count)
        count += 1
        try target.stage(
          data, EntryMetadata(header: header, size: data.count), as: staged,
          synchronized: !SystemCalls.canSynchronizeFileSystem)
        try target.moveIn(staged, to: FileName(key))
      } remove: { key in
        try target.removeEntry(FileName(key))
      }
    }
  }

  /// Makes the copy continue with the sequence numbers of the place.
  func takeOverState() throws {
    let theirs = try source.state.read()
    var contents = try target.state.read()
    contents.reservedSequence = max(theirs.reservedSequence, theirs.lastSequence)
    contents.lastSequence = contents.reservedSequence
    try target.state.write(contents)
  }

  /// Waits until the whole copy is on the disk.
  func synchronize() throws {
    try target.state.file.synchronize()
    if SystemCalls.canSynchronizeFileSystem { return try target.synchronizeFileSystem() }
    try target.synchronizeDirectories(of: passes.keys.map(FileName.init))
  }

  func release() { target.release() }
}
