import StockroomCore
import Synchronization

/// What a task is loading, if it runs a loader of ``PersistentCache/fetch(_:expiresIn:fallback:)``.
struct LoadContext: Sendable {
  @TaskLocal static var current = LoadContext()

  private struct Key: Hashable {
    let cache: ObjectIdentifier
    let key: KeyText
  }

  /// The load whose loader this is.
  private(set) var load: Int?
  /// What is loaded for one call alone, within that load or those that led to it.
  private var alone: Set<Key> = []

  private static let lastID = Atomic(0)

  /// A number that no load and no waiter of any cache has.
  static func nextID() -> Int { lastID.wrappingAdd(1, ordering: .relaxed).newValue }

  /// The context of the loader of a load that is begun in this one.
  func loading(_ load: Int) -> LoadContext {
    var context = self
    context.load = load
    return context
  }

  /// The context of a loader that runs for one call alone, since the load of its key waits for this one.
  ///
  /// - Throws: `StorageError` with code `unsupported` if that is the case already.
  func loadingAlone(_ key: KeyText, of cache: ObjectIdentifier) throws -> LoadContext {
    var context = self
    guard context.alone.insert(Key(cache: cache, key: key)).inserted else {
      throw StorageError(
        .unsupported,
        "The loader of the key \(key.string.debugDescription) fetches this key itself, without end.")
    }
    return context
  }
}

/// Thrown instead of waiting for a load that waits for the one which asks.
struct WouldWaitForItself: Error {}

/// Which loads of any cache wait for which, as far as one is waited for by the loader of another.
enum LoadGraph {
  private static let waits = MutexProtected<[Int: [Int]]>([:])

  /// Notes that the loader of a load waits for another load, unless that one waits for it. O(loads that are waited for).
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
