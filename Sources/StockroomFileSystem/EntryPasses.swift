import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Reads the entries of a place for a copy: all of them, and then repeatedly those that have changed since
/// the last pass.
final class EntryPasses: Sendable {
  /// Identifies the state of a file that has been read.
  private struct Version: Hashable {
    let identity: FileIdentity
    let changed: Timestamp
    let metadata: EntryMetadata
  }

  private let source: DiskConnection
  private let versions = MutexProtected<[CacheKey: Version]>([:])

  init(of source: DiskConnection) { self.source = source }

  /// The keys of entries that have been read and not removed since then.
  var keys: [CacheKey] { versions.withLock { Array($0.keys) } }

  /// Calls `write` for entries whose current state has not been read, and `remove` for those that are gone.
  /// If others write in the meantime, some of their changes are read.
  func run(
    _ flag: CancellationFlag, write: (CacheKey, Data, EntryHeader) throws -> Void,
    remove: (CacheKey) throws -> Void
  ) throws {
    var keys: [CacheKey] = []
    try source.entries.forEachKey { bytes in
      try flag.check()
      if let key = CacheKey(utf8: bytes) { keys.append(key) }
    }
    try versions.withLock { versions in
      var new: [CacheKey: Version] = [:]
      new.reserveCapacity(keys.count)
      for key in keys {
        try flag.check()
        let name = FileName(key)
        guard let version = try version(of: name) else { continue }
        if version != versions[key] {
          guard let (data, header) = try source.valueAndHeader(of: name) else { continue }
          try write(key, data, header)
        }
        // The version from before the read, so that a file that was replaced in the meantime is read again.
        new[key] = version
      }
      for key in versions.keys where new[key] == nil { try remove(key) }
      versions = new
    }
  }

  private func version(of name: FileName) throws -> Version? {
    guard let (file, status) = try source.entries.open(name) else { return nil }
    return Version(
      identity: status.identity, changed: status.changed,
      metadata: try source.metadata(of: file, status, name))
  }
}
