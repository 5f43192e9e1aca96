import StockroomCore

/// A page of a tree in LMDB's file, which is validated while it is read.
///
/// LMDB has no checksums and follows every number in its map: a wrong one ends the process with a signal or a
/// failed assertion. Here each number is compared with the bounds of the page before it is used (rule F2).
/// The layout is that of LMDB 0.9 on 64-bit machines, in little-endian byte order.
struct LMDBPage {
  static let (branch, leaf, overflow, meta): (UInt16, UInt16, UInt16, UInt16) = (0x01, 0x02, 0x04, 0x08)
  /// The flags of a node of a leaf: a value on separate pages, a separate tree.
  static let (bigData, subData): (UInt16, UInt16) = (0x01, 0x02)
  /// A page begins with its number (8 bytes), 2 bytes of padding, its flags (2 bytes) and 4 bytes more.
  static let headerSize = 16
  static let nodeSize = 8
  /// The root of an empty tree.
  static let none = UInt64.max
  /// The maximum depth that LMDB's cursors support.
  static let maximumDepth: UInt16 = 32

  /// The page's memory.
  private let bytes: UnsafeRawBufferPointer
  private let isLeaf: Bool
  private let upper: Int
  /// The number of nodes.
  let count: Int

  /// - Parameter bytes: The whole page, which is aligned to 8 bytes.
  init(_ bytes: UnsafeRawBufferPointer, number: UInt64, isLeaf: Bool) throws(LMDBError) {
    let lower = Self.number(12, in: bytes)
    upper = Self.number(14, in: bytes)
    guard bytes.load(as: UInt64.self) == number,
      Self.number(10, in: bytes) == Int(isLeaf ? Self.leaf : Self.branch),
      lower >= Self.headerSize, lower <= upper, upper <= bytes.count, lower & 1 == 0
    else { throw .corruptedPage }
    count = (lower - Self.headerSize) / 2
    // Only the root of a tree can have fewer nodes, and then the tree is empty and has no page.
    guard count >= (isLeaf ? 1 : 2) else { throw .corruptedPage }
    self.bytes = bytes
    self.isLeaf = isLeaf
  }

  @inline(__always)
  private static func number(_ offset: Int, in bytes: UnsafeRawBufferPointer) -> Int {
    Int(bytes.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
  }

  /// A node that is within its page, including header and key.
  struct Node {
    let offset: Int
    let flags: UInt16
    let key: UnsafeRawBufferPointer
    /// The size of the value, in a leaf.
    let dataSize: Int
    /// The page below, in a branch.
    let child: UInt64

    var dataOffset: Int { offset + LMDBPage.nodeSize + key.count }
  }

  /// The key of a node, and the offset of the node: the only data that a search needs.
  ///
  /// - Parameter index: Below ``count``.
  @inline(__always)
  private func key(_ index: Int) throws(LMDBError) -> (bytes: UnsafeRawBufferPointer, offset: Int) {
    let offset = Self.number(Self.headerSize + 2 * index, in: bytes)
    guard offset >= upper, offset + Self.nodeSize <= bytes.count, offset & 1 == 0 else {
      throw .corruptedPage
    }
    let size = Self.number(offset + 6, in: bytes)
    let start = offset + Self.nodeSize
    guard size <= CacheKey.maximumLength, start + size <= bytes.count else { throw .corruptedPage }
    return (UnsafeRawBufferPointer(rebasing: bytes[start..<start + size]), offset)
  }

  /// - Parameter index: Below ``count``.
  func node(_ index: Int) throws(LMDBError) -> Node {
    let (key, offset) = try key(index)
    let (low, high) = (Self.number(offset, in: bytes), Self.number(offset + 2, in: bytes))
    let flags = Self.number(offset + 4, in: bytes)
    return Node(
      offset: offset, flags: UInt16(truncatingIfNeeded: flags), key: key, dataSize: low | high << 16,
      child: UInt64(low) | UInt64(high) << 16 | UInt64(flags) << 32)
  }

  /// The value of a node of a leaf, if it is in the page itself.
  func value(_ node: Node) throws(LMDBError) -> UnsafeRawBufferPointer {
    let end = node.dataOffset + (node.flags == Self.bigData ? 8 : node.dataSize)
    guard end <= bytes.count else { throw .corruptedPage }
    return UnsafeRawBufferPointer(rebasing: bytes[node.dataOffset..<end])
  }

  /// The index of the child in whose range the key lies.
  func child(for key: UnsafeRawBufferPointer) throws(LMDBError) -> Int {
    // The first node of a branch has no key: it sorts before all others.
    try (1..<max(1, count)).partitioningIndex { index throws(LMDBError) in
      try self.key(index).bytes.compare(with: key) > 0
    } - 1
  }

  /// The index of the first node of a leaf whose key is not before this one, and whether it is the same key.
  func firstIndex(notBefore key: UnsafeRawBufferPointer) throws(LMDBError) -> (index: Int, isSame: Bool) {
    let index = try (0..<count).partitioningIndex { index throws(LMDBError) in
      try self.key(index).bytes.compare(with: key) >= 0
    }
    guard index < count else { return (index, false) }
    return (index, try self.key(index).bytes.compare(with: key) == 0)
  }

  /// All nodes, after verifying that they fill the page from its first to its last byte.
  func validatedNodes() throws(LMDBError) -> [Node] {
    var nodes: [Node] = []
    nodes.reserveCapacity(count)
    for index in 0..<count {
      let node = try node(index)
      // The other flags mark several values of one key, which no tree of an engine has.
      guard !isLeaf || [0, Self.bigData, Self.subData].contains(node.flags),
        !node.key.isEmpty || (!isLeaf && index == 0)
      else { throw .corruptedPage }
      nodes.append(node)
    }
    var end = upper
    for node in nodes.sorted(by: { $0.offset < $1.offset }) {
      guard node.offset == end else { throw .corruptedPage }
      let inPage = !isLeaf ? 0 : node.flags == Self.bigData ? 8 : node.dataSize
      end += (Self.nodeSize + node.key.count + inPage + 1) & ~1
      guard end <= bytes.count else { throw .corruptedPage }
    }
    guard end == bytes.count else { throw .corruptedPage }
    return nodes
  }

  /// The number of pages of a large value, given the first bytes of its first page.
  static func pageCount(
    ofLargeValue size: Int, at page: UInt64, header: UnsafeRawBufferPointer, pageSize: Int
  ) throws(LMDBError) -> Int {
    let count = Int(header.loadUnaligned(fromByteOffset: 12, as: UInt32.self))
    // A value that was overwritten by a smaller one in the same transaction keeps the pages of the larger one.
    guard header.loadUnaligned(as: UInt64.self) == page, number(10, in: header) == Int(overflow),
      count * pageSize >= headerSize + size
    else { throw .corruptedPage }
    return count
  }
}

/// A record of LMDB (`MDB_db`) that describes a tree.
struct LMDBTreeRecord: Sendable, Hashable {
  let flags: UInt16
  let depth: UInt16
  let overflowPages: UInt64
  let entries: UInt64
  let root: UInt64

  static let encodedSize = 48

  init(_ bytes: UnsafeRawBufferPointer) {
    flags = bytes.loadUnaligned(fromByteOffset: 4, as: UInt16.self)
    depth = bytes.loadUnaligned(fromByteOffset: 6, as: UInt16.self)
    overflowPages = bytes.loadUnaligned(fromByteOffset: 24, as: UInt64.self)
    entries = bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self)
    root = bytes.loadUnaligned(fromByteOffset: 40, as: UInt64.self)
  }

  /// Whether the record can describe a tree in a file with this number of pages.
  func isPossible(pageCount: UInt64) -> Bool {
    if root == LMDBPage.none { return entries == 0 }
    return root >= 2 && root < pageCount && depth >= 1 && depth <= LMDBPage.maximumDepth && entries >= 1
      // An entry takes more than a byte of a page.
      && entries >> 16 < pageCount
  }
}
