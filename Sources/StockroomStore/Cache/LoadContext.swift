import StockroomCore
import Synchronization

/// The load whose loader runs in the current task, if any: see ``PersistentCache/fetch(_:expiresIn:fallback:)``.
struct LoadContext: Sendable {
  @TaskLocal static var current = LoadContext()

  private struct Key: Hashable {
    let cache: ObjectIdentifier
    let key: EncodedKey
  }

  /// The identifier of the load; nil outside of loaders.
  private(set) var load: Int?
  /// The keys that are being loaded for a single call, in this load or in the loads that it is nested in.
  private var unshared: Set<Key> = []

  private static let lastID = Atomic(0)

  /// A new identifier for a load or a waiter, unique among all caches.
  static func nextID() -> Int { lastID.wrappingAdd(1, ordering: .relaxed).newValue }

  /// The context of a load that is nested in this one.
  func nested(_ load: Int) -> LoadContext {
    var context = self
    context.load = load
    return context
  }

  /// The context of a loader that runs for a single call, because the shared load of its key waits for this
  /// load.
  ///
  /// - Throws: `StorageError` with code `unsupported` if the key is already being loaded that way: infinite recursion.
  func unsharedLoad(_ key: EncodedKey, of cache: ObjectIdentifier) throws -> LoadContext {
    var context = self
    guard context.unshared.insert(Key(cache: cache, key: key)).inserted else {
      throw StorageError(
        .unsupported,
        "The loader of the key \(key.string.debugDescription) fetches the same key recursively, without end.")
    }
    return context
  }
}

/// Thrown if a load would wait for itself, which would be a deadlock.
struct LoadCycle: Error {}

/// The wait-for graph of the loads of all caches: a loader that fetches another key waits for the load of that key.
enum WaitForGraph {
  private static let waits = MutexProtected<[Int: [Int]]>([:])

  /// Adds an edge. If the edge would close a cycle, does nothing and returns false. O(edges).
  static func add(_ load: Int, waitsFor other: Int) -> Bool {
    waits.withLock { waits in
      var reached: Set<Int> = []
      var rest = [other]
      while let next = rest.popLast() {
        if next == load { return false }
        if reached.insert(next).inserted { rest += waits[next] ?? [] }
      }
      waits[load, default: []].append(other)
      return true
    }
  }

  static func remove(_ load: Int, waitsFor other: Int) {
    waits.withLock { waits in
      guard let index = waits[load]?.firstIndex(of: other) else { return }
      waits[load]?.remove(at: index)
      if waits[load]?.isEmpty == true { waits[load] = nil }
    }
  }
}
