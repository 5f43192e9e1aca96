import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Reads the entries of a place for a copy: all of them, and then again and again what has changed since.
final class EntryPasses: Sendable {
  /// What tells whether a file is the one that has been read, unchanged.
  private struct Version: Hashable {
    let identity: FileIdentity
    let changed: Timestamp
    let metadata: EntryMetadata
  }

  private let source: DiskConnection
  private let versions = MutexProtected<[CacheKey: Version]>([:])

  init(of source: DiskConnection) { self.source = source }

  /// The keys of what has been read and not been removed since.
  var keys: [CacheKey] { versions.withLock { Array($0.keys) } }

  /// Calls `write` with what has not been read as it is in the place, and `remove` with what is not there any more. If others write
  /// meanwhile, some of what they write is read.
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
        // That of before, so that what has been replaced in between is read again.
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
