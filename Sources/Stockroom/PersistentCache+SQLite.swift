import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension PersistentCache {
  /// Creates a cache in the program's SQLite database of caches.
  ///
  /// **Instances with the same types and no namespace, or with the same namespace, are one cache**: they share their
  /// entries, in memory and in storage. Independent caches need different namespaces:
  ///
  /// ```swift
  /// let userNames = PersistentCache<Int, String>(namespace: "user names")
  /// let roomNames = PersistentCache<Int, String>(namespace: "room names")
  /// ```
  ///
  /// The limits of the first instance apply to all, until all instances have been released.
  ///
  /// The database is in the directory `<program>/Stockroom` in the caches directory, where `<program>` is the bundle
  /// identifier, or the name of the executable if there is none. All caches created this way share the database, also in
  /// other processes of the program. The first cache of a process opens it before this returns. If it cannot be opened,
  /// every call that needs the database throws the error, until the process ends. The last writes may be lost in a power
  /// failure.
  ///
  /// - Parameters:
  ///   - namespace: Distinguishes the entries of this cache from others. The default consists of the names of the types of
  ///     keys and values, so after a type is renamed, the cache is empty. If a cache of other types in this process has the
  ///     same namespace, reading and writing throws `StorageError.Code.unsupported`. With the default, this happens if
  ///     private or local types have the same names.
  ///   - memoryLimit: The capacity of memory.
  ///   - storageLimit: The capacity of storage.
  public convenience init(
    namespace: String? = nil, memoryLimit: CacheLimit = CacheLimit(entries: 1_000),
    storageLimit: CacheLimit = .unlimited
  ) {
    do {
      let name = try namespace ?? TypeNameRegistry.name(for: [Key.self, Value.self])
      guard TypeNameRegistry.claim("cache: " + name, for: [Key.self, Value.self]) else {
        throw StorageError(
          .unsupported, "A cache of other types uses the namespace \(name.debugDescription).")
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

/// The shared cores of the caches in the caches directory.
private enum DefaultCaches {
  static let database = SQLiteStorageEngine.deferringErrors(
    directory: .caches.ofProgram, durability: .process)

  private struct Reference: Sendable {
    weak var core: (any AnyObject & Sendable)?
  }

  private static let cores = MutexProtected<[String: Reference]>([:])

  /// The core with this name, created if there is none.
  static func core<Core: AnyObject & Sendable>(_ name: String, make: () -> Core) -> Core {
    cores.withLock { cores in
      if let core = cores[name]?.core as? Core { return core }
      let core = make()
      cores[name] = Reference(core: core)
      return core
    }
  }
}
