import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// MARK: - Preserving entries of newer programs

extension StorageEngine {
  /// Applies operations in order, as one batch, unless one of them would replace a value of a newer version. A removal of
  /// such a value is applied.
  ///
  /// Runs in a transaction if the engine supports them. Otherwise the values are read first, and writes by others between
  /// the read and the write are not detected.
  ///
  /// - Throws: `StorageError` with code `unsupported`, with nothing changed; what the engine throws.
  func apply(_ operations: [StorageOperation], keepingNewerThan version: Int) async throws {
    let keys = operations.keysWrittenOver
    if keys.isEmpty { return try await apply(operations) }
    if capabilities.contains(.transactions) {
      return try await withTransaction { transaction in
        try transaction.apply(operations, keepingNewerThan: version)
      }
    }
    for (key, data) in try await readDataAndKeys(keys: keys) {
      try data.rejectReplacing(key, newerThan: version)
    }
    try await apply(operations)
  }
}

extension StorageTransaction {
  /// Applies operations in order. If `version` is not nil, throws instead if one of them would replace a value of a version
  /// that is newer than `version`.
  ///
  /// - Throws: `StorageError` with code `unsupported`, with nothing changed; what the engine throws.
  func apply(_ operations: [StorageOperation], keepingNewerThan version: Int?) throws {
    if let version { try rejectReplacing(operations.keysWrittenOver, newerThan: version) }
    try apply(operations)
  }

  /// The values of those keys that exist.
  ///
  /// Needs one read if all of the keys exist, or none. Otherwise it needs several, since a read of many keys does not show
  /// which of them are absent: if few are absent or few exist, it reads each half of the keys, otherwise each key.
  func values(of keys: [CacheKey]) throws -> [CacheKey: Data] {
    let values = try read(keys: keys)
    if values.isEmpty { return [:] }
    if values.count == keys.count { return Dictionary(zip(keys, values)) { first, _ in first } }
    if min(values.count, keys.count - values.count) * 4 >= keys.count {
      return try keys.reduce(into: [:]) { $0[$1] = try read(key: $1) }
    }
    let half = keys.count / 2
    return try self.values(of: Array(keys[..<half])).merging(self.values(of: Array(keys[half...]))) {
      first, _ in
      first
    }
  }

  /// - Throws: `StorageError` with code `unsupported` if one of the keys has a value of a newer version.
  private func rejectReplacing(_ keys: [CacheKey], newerThan version: Int) throws {
    // All at once, since each call is a round trip to a server.
    guard try read(keys: keys).contains(where: { StoredVersion(of: $0).isNewer(than: version) }) else {
      return
    }
    for key in keys { try read(key: key)?.rejectReplacing(key, newerThan: version) }
  }
}

extension Data {
  /// - Throws: `StorageError` with code `unsupported` if these are the stored bytes of a newer version.
  func rejectReplacing(_ key: CacheKey, newerThan version: Int) throws {
    let stored = StoredVersion(of: self)
    guard stored.isNewer(than: version) else { return }
    throw StorageError(newer: stored, than: version, of: key, "is not replaced by one of an older version")
  }
}

extension [StorageOperation] {
  /// The keys whose stored values the operations overwrite, each once. A key that is removed before it is written is not included.
  var keysWrittenOver: [CacheKey] {
    var keys: [CacheKey] = []
    var settled: Set<CacheKey> = []
    for operation in self {
      switch operation {
      case .write(_, let key): if settled.insert(key).inserted { keys.append(key) }
      case .remove(let key): settled.insert(key)
      case .removeAll: return keys
      }
    }
    return keys
  }
}

// MARK: - Rewriting

/// Entries of older versions that are rewritten as one batch.
struct RewritingBatch: Sendable {
  /// The maximum number of entries in a batch.
  static let keyLimit = 1_000
  /// A batch is complete when this many bytes have been read.
  private static let byteLimit = 1 << 20
  /// The maximum number of entries that are read at a time.
  private static let mostAtOnce = 64

  private let keys: ArraySlice<CacheKey>
  /// The number of entries that have been read.
  private(set) var examined = 0
  private(set) var operations: [StorageOperation] = []
  /// The bytes that the operations replace, by key.
  private(set) var replaced: [CacheKey: (old: Data, new: Data)] = [:]
  private(set) var unreadable: [UnreadableEntry] = []
  private var byteCount = 0

  /// A batch of as many of these entries as fit.
  init(_ keys: ArraySlice<CacheKey>) { self.keys = keys.prefix(Self.keyLimit) }

  /// The keys to be read next; none once the batch is complete.
  ///
  /// Their number doubles with each read, up to a limit, so that there are few reads, but few large values are read beyond
  /// the limit of bytes.
  var next: [CacheKey] {
    byteCount >= Self.byteLimit
      ? [] : Array(keys.dropFirst(examined).prefix(min(max(1, examined), Self.mostAtOnce)))
  }

  /// Adds entries that have been read, to be written if their version is an older one.
  ///
  /// - Parameter rewrite: Returns the bytes in the newest version, or nil if the entry already has it. Throws for an entry
  ///   that cannot be decoded, is of a newer version, or cannot be encoded; such an entry is added to ``unreadable``.
  mutating func add(
    _ keys: [CacheKey], _ values: [CacheKey: Data], _ rewrite: (Data, CacheKey) throws(StorageError) -> Data?
  ) {
    examined += keys.count
    var values = values
    for key in keys {
      guard let stored = values.removeValue(forKey: key) else { continue }
      byteCount += stored.count
      do throws(StorageError) {
        guard let data = try rewrite(stored, key) else { continue }
        operations.append(.write(data, key: key))
        replaced[key] = (stored, data)
      } catch {
        unreadable.append(UnreadableEntry(key: key, error: error))
      }
    }
  }
}

extension StorageTransaction {
  /// Rewrites as many of the entries as fit in one batch.
  func rewrite(
    _ keys: ArraySlice<CacheKey>, _ rewrite: (Data, CacheKey) throws(StorageError) -> Data?
  ) throws -> RewritingBatch {
    var batch = RewritingBatch(keys)
    while case let next = batch.next, !next.isEmpty { batch.add(next, try values(of: next), rewrite) }
    try apply(batch.operations)
    return batch
  }
}

extension StorageEngine {
  /// Rewrites as many of the entries as fit in one batch, in a transaction if the engine supports them. Otherwise changes
  /// of the same entries by others, between the read and the write, are lost.
  func rewrite(
    _ keys: ArraySlice<CacheKey>,
    _ rewrite: @escaping @Sendable (Data, CacheKey) throws(StorageError) -> Data?
  ) async throws -> RewritingBatch {
    if capabilities.contains(.transactions) {
      return try await withTransaction { try $0.rewrite(keys, rewrite) }
    }
    let batch = try await rewriting(keys, rewrite)
    if !batch.operations.isEmpty { try await apply(batch.operations) }
    return batch
  }

  /// The values of those keys that exist.
  func values(of keys: [CacheKey]) async throws -> [CacheKey: Data] {
    Dictionary(try await readDataAndKeys(keys: keys).map { ($0.key, $0.data) }) { first, _ in first }
  }

  /// Reads as many of the entries as fit in one batch, and returns the batch, which has not been applied yet.
  func rewriting(
    _ keys: ArraySlice<CacheKey>, _ rewrite: (Data, CacheKey) throws(StorageError) -> Data?
  ) async throws -> RewritingBatch {
    var batch = RewritingBatch(keys)
    while case let next = batch.next, !next.isEmpty { batch.add(next, try await values(of: next), rewrite) }
    return batch
  }
}

/// The result of rewriting entries of older versions.
public struct VersionRewriting: Sendable {
  /// The number of rewritten entries.
  public internal(set) var rewritten = 0
  /// The entries that could not be decoded or encoded, or are of a newer version. They have not changed.
  public internal(set) var unreadable: [UnreadableEntry] = []

  mutating func add(_ batch: RewritingBatch) {
    rewritten += batch.operations.count
    unreadable += batch.unreadable
  }
}
