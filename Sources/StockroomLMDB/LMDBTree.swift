import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A read-only mapping of `data.mdb`.
///
/// Each reader retains it. So when the file grows, a new mapping replaces it immediately, while reads in progress
/// continue in the old one: both show the same pages of the system's file cache. LMDB's own mapping is used for
/// writing, and to begin reads.
final class LMDBMap: @unchecked Sendable {
  // Safe to share: nothing writes to it through this object.
  let bytes: UnsafeRawBufferPointer

  init(fileDescriptor: Int32, size: Int) throws(LMDBError) {
    guard let start = mmap(nil, size, PROT_READ, MAP_SHARED, fileDescriptor, 0), start != MAP_FAILED else {
      throw LMDBError(code: errno)
    }
    bytes = UnsafeRawBufferPointer(start: start, count: size)
  }

  deinit { munmap(UnsafeMutableRawPointer(mutating: bytes.baseAddress), bytes.count) }
}

/// A tree in the snapshot of one transaction. It is read without LMDB's code, which would end the process if a page is
/// corrupted.
struct LMDBTree {
  private let map: LMDBMap
  private let pageSize: Int
  private let pageCount: UInt64
  let record: LMDBTreeRecord
  /// The maximum number of bytes of the file that the snapshot uses.
  var size: Int { Int(pageCount) * pageSize }

  /// - Parameter pageCount: The number of pages in use. The file must have at least as many.
  init(_ record: LMDBTreeRecord, in map: LMDBMap, pageSize: Int, pageCount: UInt64) throws(LMDBError) {
    self.map = map
    self.pageSize = pageSize
    self.pageCount = min(pageCount, UInt64(map.bytes.count / pageSize))
    self.record = record
    guard record.flags == 0, record.isPossible(pageCount: self.pageCount) else { throw .corruptedPage }
  }

  /// A page of the tree.
  func page(_ number: UInt64, isLeaf: Bool) throws(LMDBError) -> LMDBPage {
    try LMDBPage(bytes(number, pageSize), number: number, isLeaf: isLeaf)
  }

  private func bytes(_ page: UInt64, _ count: Int) throws(LMDBError) -> UnsafeRawBufferPointer {
    guard page >= 2, page < pageCount, UInt64(count) <= (pageCount - page) * UInt64(pageSize) else {
      throw .corruptedPage
    }
    let start = Int(page) * pageSize
    return UnsafeRawBufferPointer(rebasing: map.bytes[start..<start + count])
  }

  /// The value of a node, in its page or on separate pages.
  func value(_ node: LMDBPage.Node, in page: LMDBPage) throws(LMDBError) -> UnsafeRawBufferPointer {
    let value = try page.value(node)
    switch node.flags {
    case 0, LMDBPage.subData: return value
    case LMDBPage.bigData:
      let first = value.loadUnaligned(as: UInt64.self)
      _ = try pageCount(ofLargeValue: node.dataSize, at: first)
      let bytes = try bytes(first, LMDBPage.headerSize + node.dataSize)
      return UnsafeRawBufferPointer(rebasing: bytes[LMDBPage.headerSize...])
    default: throw .corruptedPage
    }
  }

  /// The number of pages of a large value that begins on this one.
  func pageCount(ofLargeValue size: Int, at first: UInt64) throws(LMDBError) -> Int {
    let header = try bytes(first, LMDBPage.headerSize)
    let count = try LMDBPage.pageCount(ofLargeValue: size, at: first, header: header, pageSize: pageSize)
    _ = try bytes(first, count * pageSize)
    return count
  }

  /// The value of the key, or nil if it is absent. O(log N).
  func value(of key: UnsafeRawBufferPointer) throws(LMDBError) -> UnsafeRawBufferPointer? {
    if record.root == LMDBPage.none { return nil }
    var (number, level) = (record.root, record.depth)
    while level > 1 {
      let page = try page(number, isLeaf: false)
      number = try page.node(page.child(for: key)).child
      level -= 1
    }
    let leaf = try page(number, isLeaf: true)
    let (index, isSame) = try leaf.firstIndex(notBefore: key)
    return isSame ? try value(leaf.node(index), in: leaf) : nil
  }
}

/// A position in a tree that advances from entry to entry in byte order of keys.
struct LMDBCursor {
  private let tree: LMDBTree
  /// The branches above the leaf, with the index of the child that leads to it.
  private var branches: [(page: LMDBPage, index: Int)] = []
  private var leaf: LMDBPage?
  private var index = 0
  /// The number of entries in the leaves visited so far. If it exceeds the number of entries of the tree, the
  /// tree has a cycle.
  private var visited: UInt64 = 0
  private let beginsAtFirst: Bool

  /// Starts before the first entry whose key is not before `start`. O(log N).
  init(_ tree: LMDBTree, from start: UnsafeRawBufferPointer) throws(LMDBError) {
    self.tree = tree
    beginsAtFirst = start.isEmpty
    if tree.record.root == LMDBPage.none { return }
    try descend(to: tree.record.root, level: tree.record.depth, from: start)
    if let leaf, !start.isEmpty { index = try leaf.firstIndex(notBefore: start).index }
  }

  /// The next entry, or nil after the last one. O(1) on average.
  mutating func next() throws(LMDBError) -> (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer)? {
    while let leaf {
      if index < leaf.count {
        let node = try leaf.node(index)
        index += 1
        return (node.key, try tree.value(node, in: leaf))
      }
      try nextLeaf()
    }
    return nil
  }

  private mutating func nextLeaf() throws(LMDBError) {
    leaf = nil
    while let (page, index) = branches.popLast() {
      guard index + 1 < page.count else { continue }
      branches.append((page, index + 1))
      let level = tree.record.depth - UInt16(branches.count)
      return try descend(
        to: page.node(index + 1).child, level: level, from: UnsafeRawBufferPointer(start: nil, count: 0))
    }
    if beginsAtFirst, visited != tree.record.entries { throw .corruptedPage }
  }

  private mutating func descend(
    to root: UInt64, level: UInt16, from start: UnsafeRawBufferPointer
  ) throws(LMDBError) {
    var (number, level) = (root, level)
    while level > 1 {
      let page = try tree.page(number, isLeaf: false)
      let index = start.isEmpty ? 0 : try page.child(for: start)
      branches.append((page, index))
      number = try page.node(index).child
      level -= 1
    }
    let leaf = try tree.page(number, isLeaf: true)
    visited += UInt64(leaf.count)
    if visited > tree.record.entries { throw .corruptedPage }
    (self.leaf, index) = (leaf, 0)
  }
}
