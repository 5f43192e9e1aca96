import StockroomCLMDB
import StockroomCore

/// A check of the pages that a batch leads LMDB to, before it gets to them.
///
/// Each page is checked once: those that were in the file when it was opened, and none that LMDB has added since.
/// LMDB itself would end the process over a corrupted one (rule F2).
struct LMDBWriteCheck {
  /// How many pages the file had when it was opened.
  private let pageCount: UInt64
  private var checked = LMDBPageSet()
  private var areFreePagesChecked = false
  /// Whether every page has been checked.
  private var isComplete = false

  /// With no more pages than this all are checked at once.
  private static let fewPages = 64

  init(pageCount: UInt64) { self.pageCount = pageCount }

  /// O(n log N) for a batch of n operations; O(N), once, for one that removes everything. In addition O(free pages), once.
  mutating func check(
    _ batch: SortedBatch, in transaction: OpaquePointer, of handle: LMDBHandle, _ file: LMDBFile
  ) throws {
    if isComplete { return }
    if !areFreePagesChecked || batch.removesAll {
      // That of the latest commit, which is not overwritten during a write transaction.
      let latest = try LMDBFileHeader.snapshot(
        of: UInt64(clamping: mdb_txn_id(transaction) - 1), pageSize: handle.pageSize,
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
    try batch.forEachKey { key, positions in
      let isRemoved = positions.contains { position in
        if case .remove = batch.operations[position] { true } else { false }
      }
      try checkPath(to: key, in: tree, isRemoved: isRemoved)
    }
  }

  private mutating func checkPath(
    to key: UnsafeRawBufferPointer, in tree: LMDBTree, isRemoved: Bool
  ) throws(LMDBError) {
    if tree.record.root == LMDBPage.none { return }
    var (number, level) = (tree.record.root, tree.record.depth)
    while level > 1 {
      let page = try check(number, isLeaf: false, in: tree)
      let index = try page.child(for: key)
      if isRemoved {
        // A page that becomes too empty is joined with a neighbour, and that may be joined with the next one.
        for neighbour in max(0, index - 2)...min(page.count - 1, index + 2) where neighbour != index {
          _ = try check(page.node(neighbour).child, isLeaf: level == 2, in: tree)
        }
      }
      number = try page.node(index).child
      level -= 1
    }
    let leaf = try check(number, isLeaf: true, in: tree)
    let (index, isSame) = try leaf.firstIndex(notBefore: key)
    // Of a large value, its pages become free.
    if isSame { _ = try tree.value(leaf.node(index), in: leaf) }
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
