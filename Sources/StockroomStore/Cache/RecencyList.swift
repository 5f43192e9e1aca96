/// A dictionary that knows in which order its keys were last put or used. Everything is O(1).
///
/// The nodes of a doubly linked list in an array, and a dictionary that says where each key is.
struct RecencyList<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  private struct Node {
    let key: Key
    var value: Value
    var size: Int
    var older: Int?
    var newer: Int?
  }

  private var nodes: [Node?] = []
  private var vacant: [Int] = []
  private var places: [Key: Int] = [:]
  private var oldest: Int?
  private var newest: Int?

  /// The sizes of all values together.
  private(set) var size = 0

  var count: Int { places.count }

  /// The value of a key, without using it.
  subscript(key: Key) -> Value? { places[key].flatMap { nodes[$0]?.value } }

  /// The size of the value of a key, or nil if it has none.
  func size(of key: Key) -> Int? { places[key].flatMap { nodes[$0]?.size } }

  /// The keys, the oldest first. Each step is O(1).
  var keysFromOldest: some Sequence<(key: Key, size: Int)> {
    sequence(state: oldest) { place in
      guard let node = place.flatMap({ nodes[$0] }) else { return nil }
      place = node.newer
      return (node.key, node.size)
    }
  }

  /// The value of a key, which becomes the newest.
  mutating func use(_ key: Key) -> Value? {
    guard let place = places[key], let value = nodes[place]?.value else { return nil }
    if place != newest {
      unlink(place)
      linkAsNewest(place)
    }
    return value
  }

  /// Puts a value, which becomes the newest, and returns the one that was there.
  @discardableResult
  mutating func put(_ value: Value, size: Int, for key: Key) -> Value? {
    let previous = remove(key)
    let node = Node(key: key, value: value, size: size)
    let place = vacant.popLast() ?? nodes.endIndex
    if place == nodes.endIndex { nodes.append(node) } else { nodes[place] = node }
    places[key] = place
    self.size += size
    linkAsNewest(place)
    return previous
  }

  /// Removes a key and returns its value.
  @discardableResult
  mutating func remove(_ key: Key) -> Value? {
    guard let place = places.removeValue(forKey: key), let node = nodes[place] else { return nil }
    unlink(place)
    nodes[place] = nil
    vacant.append(place)
    size -= node.size
    return node.value
  }

  /// Removes the oldest key and returns its value.
  mutating func removeOldest() -> Value? {
    oldest.flatMap { nodes[$0]?.key }.flatMap { remove($0) }
  }

  private mutating func unlink(_ place: Int) {
    guard let node = nodes[place] else { return }
    if let older = node.older { nodes[older]?.newer = node.newer } else { oldest = node.newer }
    if let newer = node.newer { nodes[newer]?.older = node.older } else { newest = node.older }
  }

  private mutating func linkAsNewest(_ place: Int) {
    nodes[place]?.older = newest
    nodes[place]?.newer = nil
    if let newest { nodes[newest]?.newer = place } else { oldest = place }
    newest = place
  }
}

extension RecencyList {
  /// The oldest keys, as many as have to go to be within the limit. O(keys returned).
  func keysBeyond(_ limit: CacheLimit) -> [Key] {
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
