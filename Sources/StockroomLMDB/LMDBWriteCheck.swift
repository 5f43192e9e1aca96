import StockroomCLMDB
import StockroomCore

/// A check of the pages that LMDB visits for a batch, before it visits them.
///
/// Each page that was in the file when it was opened is checked once; pages that LMDB has added since then
/// are not. LMDB itself would end the process because of a corrupted page (rule F2).
struct LMDBWriteCheck {
  /// The number of pages of the file when it was opened.
  private let pageCount: UInt64
  private var checked = LMDBPageSet()
  private var areFreePagesChecked = false
  /// Whether every page has been checked.
  private var isComplete = false

  /// If there are no more pages than this, all are checked at once.
  private static let fewPages = 64

  init(pageCount: UInt64) { self.pageCount = pageCount }

  /// O(n log N) for n writes, O(n (log N)²) for n removals, O(N) for the first batch that removes everything. The first
  /// batch also costs O(free pages).
  mutating func check(
    _ batch: SortedBatch, in transaction: OpaquePointer, of handle: LMDBHandle, _ file: LMDBFile
  ) throws {
    if isComplete { return }
    if !areFreePagesChecked || batch.removesAll {
      // The meta page of the latest commit, which is not overwritten during a write transaction.
      let latest = try LMDBFileHeader.snapshot(
        of: UInt64(clamping: mdb_txn_id(transaction) &- 1), pageSize: handle.pageSize,
        fileDescriptor: handle.fileDescriptor, path: file.path)
      guard let latest else { throw LMDBError.corruptedPage }
      var check = LMDBTreeCheck(file: handle.fileDescriptor, latest)
      if batch.removesAll || pageCount <= Self.fewPages {
        try check.checkAll()
        isComplete = true
        return
      }
      try check.checkFreePages()
      areFreePagesChecked = true
    }
    let tree = try handle.tree(in: transaction, pageCount: handle.pageCount)
    var lastRemoval: [UInt64] = []
    try batch.forEachKey { key, positions in
      let isRemoved = positions.contains { position in
        if case .remove = batch.operations[position] { true } else { false }
      }
      let path = try checkPath(to: key, in: tree, isRemoved: isRemoved, after: lastRemoval)
      if isRemoved { lastRemoval = path }
    }
  }

  /// - Parameter lastRemoval: The path to the previous key that is removed, whose neighbors have been
  ///   checked.
  /// - Returns: The path to a key that is removed, from the child of the root to the leaf.
  private mutating func checkPath(
    to key: UnsafeRawBufferPointer, in tree: LMDBTree, isRemoved: Bool, after lastRemoval: [UInt64]
  ) throws(LMDBError) -> [UInt64] {
    var path: [UInt64] = []
    if tree.record.root == LMDBPage.none { return path }
    var (number, level) = (tree.record.root, tree.record.depth)
    while level > 1 {
      let page = try check(number, isLeaf: false, in: tree)
      let index = try page.child(for: key)
      number = try page.node(index).child
      level -= 1
      if isRemoved, !lastRemoval.indices.contains(path.count) || lastRemoval[path.count] != number {
        // A page that becomes too empty is merged with a neighbor, and the result may be merged with the next
        // one.
        for neighbor in max(0, index - 2)...min(page.count - 1, index + 2) {
          try checkEdges(of: page.node(neighbor).child, level: level, in: tree)
        }
      }
      if isRemoved { path.append(number) }
    }
    let leaf = try check(number, isLeaf: true, in: tree)
    let (index, isSame) = try leaf.firstIndex(notBefore: key)
    // The pages of a large value become free.
    if isSame { _ = try tree.value(leaf.node(index), in: leaf) }
    return path
  }

  /// Checks a page, and the first and the last pages below it on each level. After a leaf loses its last key, LMDB
  /// follows the first pages to the next leaf. It also follows them to the first key of a branch that it merges with
  /// another one, and then the last page of a branch can become the neighbor of the next page that becomes too empty.
  private mutating func checkEdges(
    of root: UInt64, level: UInt16, in tree: LMDBTree
  ) throws(LMDBError) {
    for isLast in [false, true] {
      var (number, level) = (root, level)
      while level > 1 {
        let page = try check(number, isLeaf: false, in: tree)
        number = try page.node(isLast ? page.count - 1 : 0).child
        level -= 1
      }
      _ = try check(number, isLeaf: true, in: tree)
    }
  }

  private mutating func check(
    _ number: UInt64, isLeaf: Bool, in tree: LMDBTree
  ) throws(LMDBError) -> LMDBPage {
    let page = try tree.page(number, isLeaf: isLeaf)
    if number < pageCount, !checked.contains(number) {
      _ = try page.validatedNodes()
      _ = checked.insert(number)
    }
    return page
  }
}
