import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension PersistentCache {
  /// The cache with these types of keys and values, or with this name, in an SQLite database of the program's own.
  ///
  /// **Made twice it is one cache**: whatever is made with the same types and no namespace, or with the same namespace,
  /// has the same entries, in memory and in storage. Two caches that have nothing to do with each other need two
  /// namespaces:
  ///
  /// ```swift
  /// let userNames = PersistentCache<Int, String>(namespace: "user names")
  /// let roomNames = PersistentCache<Int, String>(namespace: "room names")
  /// ```
  ///
  /// The limits are those with which the cache was made first, until nobody has it any more.
  ///
  /// The database is `<program>/Stockroom` in the caches directory, with the bundle identifier for the program, or the
  /// name of the executable where there is none. All caches made this way share it, also with other processes of the
  /// program. The first one opens it before this returns. If it cannot be opened, whatever has to ask it throws the
  /// reason, as long as the process lives. When the machine dies, what was written last may be lost.
  ///
  /// - Parameters:
  ///   - namespace: What tells the entries of this cache from those of others. By default the names of the types of
  ///     keys and values: types that are renamed begin with an empty cache. If the name belongs to a cache of other
  ///     types in this process, as it may with two pairs of private or local types of the same names, then reading and
  ///     writing throws `StorageError.Code.unsupported`.
  ///   - memoryLimit: How much is kept in memory.
  ///   - storageLimit: How much is kept in storage.
  public convenience init(
    namespace: String? = nil, memoryLimit: CacheLimit = CacheLimit(entries: 1_000),
    storageLimit: CacheLimit = .unlimited
  ) {
    do {
      let name = try namespace ?? PlacesOfTypes.name(for: [Key.self, Value.self])
      guard PlacesOfTypes.claim("cache: " + name, for: [Key.self, Value.self]) else {
        throw StorageError(.unsupported, "A cache of other types has the namespace \(name.debugDescription).")
      }
      self.init(
        core: DefaultCaches.core(name) {
          Core(
            storage: DefaultCaches.database, namespace: name, memoryLimit: memoryLimit,
            storageLimit: storageLimit)
        })
    } catch {
      self.init(
        storage: SQLiteStorageEngine.deferringErrors(directory: try { throw error }()),
        memoryLimit: memoryLimit, storageLimit: storageLimit)
    }
  }
}

/// The caches in the caches directory, each of which there is once.
private enum DefaultCaches {
  static let database = SQLiteStorageEngine.deferringErrors(
    directory: .caches.ofProgram, durability: .process)

  private struct Reference: Sendable {
    weak var core: (any AnyObject & Sendable)?
  }

  private static let cores = MutexProtected<[String: Reference]>([:])

  /// The core of the cache of this name, and if there is none, a new one.
  static func core<Core: AnyObject & Sendable>(_ name: String, make: () -> Core) -> Core {
    cores.withLock { cores in
      if let core = cores[name]?.core as? Core { return core }
      let core = make()
      cores[name] = Reference(core: core)
      return core
    }
  }
}
