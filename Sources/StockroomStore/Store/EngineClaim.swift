import StockroomCore

/// A store's claim on an engine, for the life of the store. It prevents stores of other types of items on the same engine,
/// since each would treat the other's entries as its own: `removeAll()` of one would remove the items of the other.
///
/// Only engines that are objects have an identity. Engines that are values can serve any number of types.
final class EngineClaim: Sendable {
  private struct Users {
    let type: any Any.Type
    var count: Int
  }

  private static let users = MutexProtected<[ObjectIdentifier: Users]>([:])

  /// Retained, so that no later object can have the same `ObjectIdentifier`.
  private let engine: any StorageEngine
  /// Nil if the engine is a value.
  private let identity: ObjectIdentifier?

  /// - Throws: `StorageError` with code `unsupported` if the engine serves stores of another type of items.
  convenience init(of engine: any StorageEngine, by type: any Any.Type) throws {
    guard Swift.type(of: engine) is AnyObject.Type else {
      self.init(engine, nil)
      return
    }
    let identity = ObjectIdentifier(engine as AnyObject)
    let owner = Self.users.withLock { users in
      let owner = users[identity]?.type ?? type
      if owner == type { users[identity, default: Users(type: type, count: 0)].count += 1 }
      return owner
    }
    guard owner == type else {
      throw StorageError(
        .unsupported,
        "The engine is in use by a store of \(owner) and cannot be used by one of \(type): each store would treat the "
          + "other's entries as its own. Open a separate engine, in a separate directory, for each type of item."
      )
    }
    self.init(engine, identity)
  }

  private init(_ engine: any StorageEngine, _ identity: ObjectIdentifier?) {
    (self.engine, self.identity) = (engine, identity)
  }

  deinit {
    guard let identity else { return }
    Self.users.withLock { users in
      users[identity]?.count -= 1
      if users[identity]?.count == 0 { users[identity] = nil }
    }
  }
}
