import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension PersistentCache {
  /// A cache whose storage is an SQLite database in the caches directory, which all caches made this way share.
  ///
  /// The first one opens the database before this returns. If it cannot be opened, whatever has to ask it throws the
  /// reason, as long as the process lives. When the machine dies, what was written last may be lost.
  ///
  /// - Parameters:
  ///   - namespace: What tells the entries of this cache from those of others. By default the names of the types of
  ///     keys and values: types that are renamed begin with an empty cache, and two pairs of private or local types with
  ///     the same names cannot both do without a namespace: reading and writing the second cache throws.
  ///   - memoryLimit: How much is kept in memory.
  ///   - storageLimit: How much is kept in storage.
  public convenience init(
    namespace: String? = nil, memoryLimit: CacheLimit = CacheLimit(entries: 1_000),
    storageLimit: CacheLimit = .unlimited
  ) {
    switch Result(catching: { try namespace ?? PlacesOfTypes.name(for: [Key.self, Value.self]) }) {
    case .success(let namespace):
      self.init(
        storage: CachesDatabase.shared, namespace: namespace, memoryLimit: memoryLimit,
        storageLimit: storageLimit)
    case .failure(let error):
      self.init(
        storage: SQLiteStorageEngine.deferringErrors(directory: try { throw error }()),
        memoryLimit: memoryLimit, storageLimit: storageLimit)
    }
  }
}

private enum CachesDatabase {
  static let shared = SQLiteStorageEngine.deferringErrors(
    directory: .caches(appendingPath: "Stockroom"), durability: .process)
}
