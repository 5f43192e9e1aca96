/// A dictionary in least-recently-used order. All operations on one key are O(1).
///
/// Consists of an array with the nodes of a doubly linked list, and a dictionary from keys to positions in the array.
package struct LRUList<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  private struct Node {
    let key: Key
    var value: Value
    var size: Int
    var older: Int?
    var newer: Int?
  }

  package init() {}

  private var nodes: [Node?] = []
  private var vacant: [Int] = []
  private var positions: [Key: Int] = [:]
  private var oldest: Int?
  private var newest: Int?

  /// The total size of all values.
  package private(set) var size = 0

  package var count: Int { positions.count }

  /// The value of a key, without marking it as used.
  package subscript(key: Key) -> Value? { positions[key].flatMap { nodes[$0]?.value } }

  /// The size of the value of a key, or nil if it has none.
  package func size(of key: Key) -> Int? { positions[key].flatMap { nodes[$0]?.size } }

  /// The keys, the least recently used first. Each step is O(1).
  package var keysFromOldest: some Sequence<(key: Key, size: Int)> {
    sequence(state: oldest) { position in
      guard let node = position.flatMap({ nodes[$0] }) else { return nil }
      position = node.newer
      return (node.key, node.size)
    }
  }

  /// The value of a key, which becomes the most recently used.
  package mutating func use(_ key: Key) -> Value? {
    guard let position = positions[key], let value = nodes[position]?.value else { return nil }
    if position != newest {
      unlink(position)
      linkAsNewest(position)
    }
    return value
  }

  /// Sets a value, which becomes the most recently used, and returns the previous one.
  @discardableResult
  package mutating func put(_ value: Value, size: Int, for key: Key) -> Value? {
    let previous = remove(key)
    let node = Node(key: key, value: value, size: size)
    let position = vacant.popLast() ?? nodes.endIndex
    if position == nodes.endIndex { nodes.append(node) } else { nodes[position] = node }
    positions[key] = position
    self.size += size
    linkAsNewest(position)
    return previous
  }

  /// Removes a key and returns its value.
  @discardableResult
  package mutating func remove(_ key: Key) -> Value? {
    guard let position = positions.removeValue(forKey: key), let node = nodes[position] else { return nil }
    unlink(position)
    nodes[position] = nil
    vacant.append(position)
    size -= node.size
    return node.value
  }

  /// Removes the least recently used key and returns its value.
  package mutating func removeOldest() -> Value? {
    oldest.flatMap { nodes[$0]?.key }.flatMap { remove($0) }
  }

  private mutating func unlink(_ position: Int) {
    guard let node = nodes[position] else { return }
    if let older = node.older { nodes[older]?.newer = node.newer } else { oldest = node.newer }
    if let newer = node.newer { nodes[newer]?.older = node.older } else { newest = node.older }
  }

  private mutating func linkAsNewest(_ position: Int) {
    nodes[position]?.older = newest
    nodes[position]?.newer = nil
    if let newest { nodes[newest]?.newer = position } else { oldest = position }
    newest = position
  }
}

extension LRUList {
  /// The least recently used keys that exceed the limit. O(keys returned).
  package func keysBeyond(_ limit: CacheLimit) -> [Key] {
    var (entries, bytes) = (count, size)
    var keys: [Key] = []
    for (key, size) in keysFromOldest {
      guard limit.isExceeded(entries: entries, bytes: bytes) else { break }
      keys.append(key)
      entries -= 1
      bytes -= size
    }
    return keys
  }
}
