import StockroomCore

/// A copy of a place in another directory, which nobody else uses.
final class DiskCopy: Sendable {
  /// What tells whether a file is the one that has been copied, unchanged.
  private struct Version: Hashable {
    let identity: FileIdentity
    let changed: Timestamp
    let metadata: EntryMetadata
  }

  private struct State {
    var versions: [CacheKey: Version] = [:]
    /// How many files have been written.
    var count = 0
  }

  private let source: DiskConnection
  private let target: DiskConnection
  private let state = MutexProtected(State())

  init(of source: DiskConnection, to target: DiskConnection) {
    self.source = source
    self.target = target
  }

  /// Copies what is not in the copy as it is in the place, and removes what is not there any more. If others write meanwhile, some of
  /// what they write is in it.
  func bringUpToDate(_ flag: CancellationFlag) throws {
    var keys: [CacheKey] = []
    try source.entries.forEachKey { bytes in
      try flag.check()
      if let key = CacheKey(utf8: bytes) { keys.append(key) }
    }
    try state.withLock { state in
      var versions: [CacheKey: Version] = [:]
      versions.reserveCapacity(keys.count)
      for key in keys {
        try flag.check()
        versions[key] = try copy(key, unless: state.versions[key], count: &state.count)
      }
      for key in state.versions.keys where versions[key] == nil { try target.removeEntry(FileName(key)) }
      state.versions = versions
    }
  }

  /// Copies an entry, unless it is the same as before. Returns which one is in the copy now; nil if it is absent.
  private func copy(_ key: CacheKey, unless copied: Version?, count: inout Int) throws -> Version? {
    let name = FileName(key)
    guard let version = try version(of: name) else { return nil }
    if version == copied { return version }
    guard let (data, header) = try source.valueAndHeader(of: name) else { return nil }
    let staged = StagedName(boundary: 0, number: count)
    count += 1
    try target.stage(
      data, EntryMetadata(header: header, size: data.count), as: staged,
      synchronized: !SystemCalls.canSynchronizeFileSystem)
    try target.moveIn(staged, to: name)
    // That of before, so that what has been replaced in between is copied again.
    return version
  }

  private func version(of name: FileName) throws -> Version? {
    guard let (file, status) = try source.entries.open(name) else { return nil }
    return Version(
      identity: status.identity, changed: status.changed,
      metadata: try source.metadata(of: file, status, name))
  }

  /// Makes the copy go on counting where the place does.
  func takeOverState() throws {
    let theirs = try source.state.read()
    var contents = try target.state.read()
    contents.reservedSequence = max(theirs.reservedSequence, theirs.lastSequence)
    contents.lastSequence = contents.reservedSequence
    try target.state.write(contents)
  }

  /// Waits until all of it is on the disk.
  func synchronize() throws {
    try target.state.file.synchronize()
    if SystemCalls.canSynchronizeFileSystem { return try target.synchronizeFileSystem() }
    try target.synchronizeDirectories(of: state.withLock { $0.versions.keys.map(FileName.init) })
  }

  func release() { target.release() }
}
