import StockroomCore
import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The database of a `SQLiteCacheStorage` of PersistentCacheKit.
///
/// ```swift
/// let source = PersistentCacheSource(at: FileManager.Directory.caches(appendingPath: "SQLiteCacheStorage.shared").url)
/// try await source.import(into: cache, namespace: "com.example.app") { UUID(uuidString: $0) }
/// ```
///
/// The database has a table `cache_storage` with the columns `key`, `data` and `createdAt`, in seconds since
/// 1970. A key is the namespace, immediately followed by the description of the key. A value is a property
/// list with `value` and, if it expires, `expiration`. Rows whose value was removed have no data, and are
/// ignored. As with ``BodegaSQLiteSource``, a copy of the database is read.
public struct PersistentCacheSource: ImportSource {
  private static let table = "cache_storage"
  /// The maximum number, and the maximum total size, of values in memory that are not written yet.
  private static let (unwrittenCount, unwrittenBytes) = (100, 8 << 20)
  private let url: URL
  /// A copy that is already open, since it was needed to detect the kind of the source.
  private let detected: SourceDatabase?

  /// - Parameter url: The database, `storage.sqlite` by default, or the directory that contains it.
  public init(at url: URL) {
    self.url = url
    detected = nil
  }

  init(at url: URL, detected: SourceDatabase) {
    self.url = url
    self.detected = detected
  }

  /// "the cache" and its path.
  public var description: String { "the cache \(url.path(percentEncoded: false))" }

  /// Copies and checks the database, then reads all keys and times.
  ///
  /// - Throws: as ``ImportSource/open()``.
  @concurrent
  public func open() async throws -> any ImportContent {
    try await DedicatedThread.runOnNewThread { flag in
      let database = try SourceDatabase.checked(detected, at: url, suffix: ".sqlite", flag)
      guard try Self.isPresent(in: database) else {
        throw StorageError(
          .unsupported,
          "\(database.path) has no table \(Self.table) with the columns of PersistentCacheKit's.")
      }
      return try TableContent(of: Self.table, .persistentCache, in: database)
    }
  }

  static func isPresent(in database: SourceDatabase) throws -> Bool {
    try database.tables()[table] == TableLayout.persistentCache.columns
  }

  /// Copies the values of one cache in the source into a cache of this package, with their expiry, in the order in
  /// which they were written.
  ///
  /// Values that have expired by the clock of the target are skipped. A value that the target already has, or that the
  /// program stores in the meantime, is kept unless it has expired. The `storageLimit` of the target or, if it has no
  /// storage, its `memoryLimit` must be large enough for all values. Otherwise the target evicts some of them, which
  /// the report still counts as imported.
  ///
  /// - Parameters:
  ///   - cache: The target.
  ///   - namespace: The namespace in the source, or nil if there is none. Other caches in the same database are
  ///     skipped: their keys do not begin with the namespace, or `key` returns nil for them.
  ///   - key: Returns the key with this description, or nil if there is none.
  /// - Throws: as ``ImportSource/open()``; `StorageError` with code `decodingFailed`, and the key in its message, for a
  ///   value that is not a `Value`; what the cache throws; `CancellationError`.
  @concurrent
  @discardableResult
  public func `import`<Key, Value>(
    into cache: PersistentCache<Key, Value>, namespace: String? = nil,
    key: @Sendable (_ description: String) -> Key?
  ) async throws -> ImportReport {
    let content = try await open()
    var report = ImportReport()
    let namespace = Array((namespace ?? "").utf8)
    var timer = YieldTimer()
    var unwritten = (count: 0, bytes: 0)
    var start = 0
    while start < content.count {
      let batch = try await content.keys(from: start) { $0.value.utf8.starts(with: namespace) }
      start += batch.count
      for (stored, entry) in batch {
        try await timer.yieldIfDue()
        let name = stored.value
        guard let entry, let rest = String(name.utf8.dropFirst(namespace.count)), let key = key(rest) else {
          report.omissions.append("\(name.prefix(40).debugDescription) is not a key of this cache.")
          continue
        }
        let item = try CachedItem<Value>(entry)
        if let expiration = item.expiration, expiration <= cache.now() {
          report.omissions.append("\(name.prefix(40).debugDescription) has expired.")
        } else if try await cache.assign(
          item: CacheItem(item.value, expiresAt: item.expiration), forAbsentKey: key)
        {
          report.imported += 1
          report.bytes += entry.data.count
          unwritten.count += 1
          unwritten.bytes += entry.data.count
          // Values that are not written yet are in memory.
          if unwritten.count >= Self.unwrittenCount || unwritten.bytes >= Self.unwrittenBytes {
            try await cache.sync()
            unwritten = (0, 0)
          }
        } else {
          report.alreadyPresent += 1
        }
      }
    }
    try await cache.sync()
    return report
  }
}

/// The data that PersistentCacheKit stores under a key.
private struct CachedItem<Value: Decodable>: Decodable {
  var expiration: Date?
  var value: Value

  init(_ entry: StorageEntry) throws {
    do {
      self = try PropertyListDecoder().decode(untrusted: CachedItem.self, from: entry.data)
    } catch {
      throw StorageError(
        .decodingFailed, "The \(entry.data.count) bytes of \(entry.key) are not a cached \(Value.self).",
        underlying: error)
    }
  }
}
