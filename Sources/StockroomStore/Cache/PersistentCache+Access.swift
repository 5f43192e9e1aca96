import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// The value of a key, or nil if there is none or it has expired.
  ///
  /// O(1) and without waiting if the value is in memory; one read of the engine if not.
  ///
  /// - Throws: what the engine throws (rule R4); `StorageError` with code `decodingFailed` if what is stored, and has
  ///   not expired, is no value of this type; `encodingFailed` if the key cannot be encoded.
  public subscript(key: Key) -> Value? {
    get async throws {
      guard let item = try await find(KeyText(key), .unexpired), !item.isExpired(at: now()) else {
        return nil
      }
      return item.value
    }
  }

  /// The value of a key with its expiry, also if it has expired, or nil if there is none.
  ///
  /// Costs and throws as a regular read, and throws `decodingFailed` also of what has expired.
  public subscript(item key: Key) -> Item? {
    get async throws { try await find(KeyText(key), .all) }
  }

  /// Keeps a value that does not expire, or with nil removes what there is: `cache[key] = value`.
  ///
  /// Every later read sees it. It is written in the background, in the order of assignments; of several for one key
  /// that wait, the last takes the place of the first. What could not be written ``sync()`` throws. O(1), and never
  /// waits for storage.
  ///
  /// **What has not been written when the process ends is lost**, even if it ends by returning from `main`. Wait for
  /// ``sync()`` before that, or use ``store(_:forKey:expiresIn:)``.
  public func assign(_ value: Value?, forKey key: Key) { assign(item: value.map { Item($0) }, forKey: key) }

  /// Keeps an item, or with nil removes what there is: `cache[item: key] = item`. See ``assign(_:forKey:)``.
  public func assign(item: Item?, forKey key: Key) {
    let item = item?.given(at: now())
    do {
      let text = try KeyText(key)
      schedule { assign(item, to: text, in: &$0) }
    } catch {
      withState { $0.failures.append(error) }
    }
  }

  /// Keeps a value that expires some seconds from now, or with nil never. The engine has acknowledged it on return.
  ///
  /// Reads see it from then on. The cost is that of one write of the engine, less where several tasks store at once.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or what the engine throws. Then nothing has changed, as far as
  ///   the engine can tell: where it may have done its work all the same, as after `io`, the next read asks it.
  @concurrent
  public func store(_ value: Value, forKey key: Key, expiresIn lifetime: TimeInterval? = nil) async throws {
    try await change(KeyText(key), to: newItem(value, expiresIn: lifetime))
  }

  /// Removes what there is under a key. The engine has acknowledged it on return.
  ///
  /// Costs and throws as ``store(_:forKey:expiresIn:)``.
  @concurrent
  public func removeValue(forKey key: Key) async throws {
    try await change(KeyText(key), to: nil)
  }

  func newItem(_ value: Value, expiresIn lifetime: TimeInterval?) -> Item {
    lifetime.map { Item(value, expiresIn: $0).given(at: now()) } ?? Item(value)
  }

  func assign(_ item: Item?, to key: KeyText, in state: inout State) {
    if isWrittenBehind { state.assign(item, to: key) } else { state.set(item, size: 0, for: key) }
  }

  private func change(_ key: KeyText, to item: Item?) async throws {
    try Task.checkCancellation()
    guard isWrittenBehind else { return withState { $0.set(item, size: 0, for: key) } }
    let value = try item.map { try encoded($0.value, for: key) }
    try await withCheckedThrowingContinuation { continuation in
      let change = CacheChange(key: key, item: item, value: value, acknowledgement: continuation)
      schedule { $0.queue.append(.change(change)) }
    }
  }
}

// MARK: - Reading

extension PersistentCache {
  /// The entries that a read cannot do without. If another cannot be decoded it is a miss.
  enum Need { case all, unexpired, none }

  /// The item of a key, from memory or from storage.
  func find(_ key: KeyText, _ need: Need) async throws -> Item? {
    guard let storage else { return withState { $0.lookUp(key) } ?? nil }
    switch withState({ $0.beginRead(of: key) }) {
    case .known(let item): return item
    case .inStorage(let ticket): return try await read(key, need, ticket: ticket, from: storage)
    }
  }

  /// The value of a key if it is in memory and has not expired.
  func valueInMemory(_ key: KeyText) -> Value? {
    guard let item = withState({ $0.lookUp(key) }) ?? nil, !item.isExpired(at: now()) else { return nil }
    return item.value
  }

  @concurrent
  private func read(_ key: KeyText, _ need: Need, ticket: Int?, from storage: CacheStorage) async throws
    -> Item?
  {
    var found: Item?
    var size = 0
    defer { withState { $0.endRead(of: key, ticket: ticket, found: found, size: size) } }
    var isNeeded = need != .none
    do {
      guard let entry = try await storage.read(key) else { return nil }
      isNeeded = need == .all || need == .unexpired && !entry.isExpired(at: now())
      let value = try codec.decode(Value.self, from: entry.value, of: storage.namespace.name(of: key).key)
      found = Item(value, expiresAt: entry.expiresAt)
      size = entry.value.count
    } catch let error as StorageError where error.code == .decodingFailed && !isNeeded {
      // Whoever asks can do without it, or has another.
    }
    return found
  }
}
