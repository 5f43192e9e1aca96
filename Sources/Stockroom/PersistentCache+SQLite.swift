import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension PersistentCache {
  /// A cache whose storage is an SQLite database in the caches directory, which all caches made this way share.
  ///
  /// If the database cannot be opened, whatever has to ask it throws the reason. When the machine dies, what was
  /// written last may be lost.
  ///
  /// - Parameters:
  ///   - namespace: What tells the entries of this cache from those of others. By default the names of the types of
  ///     keys and values: a type that is renamed begins with an empty cache.
  ///   - memoryLimit: How much is kept in memory.
  ///   - storageLimit: How much is kept in storage.
  public convenience init(
    namespace: String? = nil, memoryLimit: CacheLimit = CacheLimit(entries: 1_000),
    storageLimit: CacheLimit = .unlimited
  ) {
    self.init(
      storage: CachesDatabase.shared,
      namespace: namespace ?? "\(nameForPlaces(of: Key.self)): \(nameForPlaces(of: Value.self))",
      memoryLimit: memoryLimit, storageLimit: storageLimit)
  }
}

private enum CachesDatabase {
  static let shared = SQLiteStorageEngine.deferringErrors(
    directory: .caches(appendingPath: "Stockroom"), durability: .process)
}
