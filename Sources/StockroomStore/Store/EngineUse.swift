import StockroomCore

/// A store's use of an engine, as long as the store lives. It keeps stores of other types of items from the engine,
/// since each would take the other's entries for its own: emptying one would empty the other.
///
/// Only engines that are objects can be recognised. One that is a value serves any store.
final class EngineUse: Sendable {
  private struct Users {
    let type: any Any.Type
    var count: Int
  }

  private static let users = MutexProtected<[ObjectIdentifier: Users]>([:])

  /// Kept, so that no other object gets its identity.
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
        "The engine already serves a store of \(owner), so it cannot serve one of \(type): each store would take the "
          + "other's entries for its own, and remove them. Give each type of item an engine of its own, in a directory "
          + "of its own.")
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
