import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A check of the pages of an environment's trees, before LMDB relies on them.
///
/// Reads the file and not the map, so that it throws if the file is truncated in the meantime. Its methods throw
/// ``LMDBError``, with `MDB_CORRUPTED` if LMDB cannot have written what they find, or `CancellationError`.
struct LMDBTreeCheck {
  private enum Kind { case free, main, entries }

  private let file: Int32
  private let snapshot: LMDBMetaPage
  /// The pages visited so far. No page may be visited twice.
  private var visited = LMDBPageSet()
  /// The tree of entries, once the main tree has been walked.
  private var entries: LMDBTreeRecord?
  private var hasMetadata = false
  /// The last key in the tree that is being walked, and the lower bound of the next one.
  private var (previous, least): ([UInt8], [UInt8]) = ([], [])
  /// Called for each page.
  private let isCancelled: () -> Bool

  init(file: Int32, _ snapshot: LMDBMetaPage, isCancelled: @escaping () -> Bool = { false }) {
    self.file = file
    self.snapshot = snapshot
    self.isCancelled = isCancelled
  }

  private var pageSize: Int { snapshot.pageSize }
  private var pageCount: UInt64 { snapshot.lastPage + 1 }

  /// Checks the parts that do not depend on the number of entries: the main tree, which is one page, and the
  /// other roots.
  ///
  /// - Throws: Also `StorageError` with code `unsupported` if the environment belongs to another program.
  mutating func checkRoots(_ path: String) throws {
    guard snapshot.main.isPossible(pageCount: pageCount), snapshot.free.isPossible(pageCount: pageCount)
    else {
      throw LMDBError.corruptedPage
    }
    for root in [snapshot.main, snapshot.free] where root.root != LMDBPage.none { try checkPage(root) }
    let foreign = StorageError(.unsupported, "\(path) is the LMDB database of another program.")
    // The main tree of a Stockroom environment is one page with two entries. A deeper one belongs to another program,
    // and is not checked.
    guard snapshot.main.flags == 0, snapshot.main.depth <= 1 else { throw foreign }
    try walk(snapshot.main, .main)
    guard hasMetadata || snapshot.main.root == LMDBPage.none else { throw foreign }
    guard let entries else { return }
    guard entries.flags == 0, entries.isPossible(pageCount: pageCount) else { throw LMDBError.corruptedPage }
    if entries.root != LMDBPage.none { try checkPage(entries) }
    try checkFreeFlags()
  }

  /// Checks everything, including keys and their order. O(N), except for the contents of large values.
  mutating func checkAll() throws {
    try walk(snapshot.main, .main)
    guard let entries, entries.flags == 0 else { throw LMDBError.corruptedPage }
    try walk(entries, .entries)
    // The free pages come last, since none of the others may be among them.
    try checkFreePages()
  }

  /// Checks the tree of free pages, from which LMDB takes the pages that it writes. O(free pages).
  mutating func checkFreePages() throws {
    try checkFreeFlags()
    try walk(snapshot.free, .free)
  }

  /// Checks the flags of the tree of free pages. The field also contains flags of the environment, but Stockroom uses
  /// no flag that is stored.
  private func checkFreeFlags() throws(LMDBError) {
    guard snapshot.free.flags == UInt16(MDB_INTEGERKEY) else { throw .corruptedPage }
  }

  /// Checks one page, the root of a tree.
  private func checkPage(_ tree: LMDBTreeRecord) throws {
    let bytes = try read(pageSize, of: tree.root)
    _ = try bytes.withUnsafeBytes { bytes in
      try LMDBPage(bytes, number: tree.root, isLeaf: tree.depth == 1).validatedNodes()
    }
  }

  private mutating func walk(_ tree: LMDBTreeRecord, _ kind: Kind) throws {
    guard tree.isPossible(pageCount: pageCount) else { throw LMDBError.corruptedPage }
    if tree.root == LMDBPage.none { return }
    (previous, least) = ([], [])
    let count = try walk(tree.root, level: tree.depth, kind)
    if count != tree.entries { throw LMDBError.corruptedPage }
  }

  /// Checks a page and those below it. Returns the number of entries.
  private mutating func walk(_ page: UInt64, level: UInt16, _ kind: Kind) throws -> UInt64 {
    if isCancelled() { throw CancellationError() }
    try markVisited(page, count: 1)
    let bytes = try read(pageSize, of: page)
    return try bytes.withUnsafeBytes { bytes in
      let isLeaf = level == 1
      let contents = try LMDBPage(bytes, number: page, isLeaf: isLeaf)
      var count: UInt64 = 0
      for (index, node) in try contents.validatedNodes().enumerated() {
        if isLeaf {
          try checkOrder(node.key, kind, isEntry: true)
          try check(node, in: contents, kind)
          count += 1
        } else {
          if index > 0 { try checkOrder(node.key, kind, isEntry: false) }
          count += try walk(node.child, level: level - 1, kind)
        }
      }
      return count
    }
  }

  /// Checks the order of keys: those of entries ascend, and the key of a branch node lies between the entries before it
  /// and the entries below it.
  private mutating func checkOrder(
    _ key: UnsafeRawBufferPointer, _ kind: Kind, isEntry: Bool
  ) throws(LMDBError) {
    let isOrdered: Bool
    if kind == .free {
      guard key.count == 8 else { throw .corruptedPage }
      func number(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        bytes.count == 8 ? bytes.loadUnaligned(as: UInt64.self) : 0
      }
      isOrdered =
        previous.withUnsafeBytes(number) < number(key) && least.withUnsafeBytes(number) <= number(key)
    } else {
      isOrdered =
        previous.withUnsafeBytes { $0.compare(with: key) } < 0
        && least.withUnsafeBytes { $0.compare(with: key) } <= 0
    }
    guard isOrdered else { throw .corruptedPage }
    if isEntry { previous = Array(key) } else { least = Array(key) }
  }

  /// Checks the parts of an entry.
  private mutating func check(_ node: LMDBPage.Node, in page: LMDBPage, _ kind: Kind) throws {
    let value = try page.value(node)
    if kind == .entries {
      guard node.dataSize >= EntryHeader.encodedSize, CacheKey(utf8: node.key) != nil else {
        throw LMDBError.corruptedPage
      }
    }
    if node.flags == LMDBPage.bigData {
      let contents = try large(
        value.loadUnaligned(as: UInt64.self), size: node.dataSize, isRead: kind == .free)
      if kind == .free { try contents.withUnsafeBytes { try check(freePages: $0) } }
      return
    }
    switch kind {
    case .main:
      if node.flags == LMDBPage.subData,
        LMDBMetadata.entriesName.withUTF8Buffer({ node.key.elementsEqual($0) })
      {
        guard value.count == LMDBTreeRecord.encodedSize else { throw LMDBError.corruptedPage }
        entries = LMDBTreeRecord(value)
      }
      if node.flags == 0, node.key.elementsEqual(LMDBMetadata.name.utf8) {
        hasMetadata = LMDBMetadata(decoding: value) != nil
      }
    case .free, .entries:
      guard node.flags == 0 else { throw LMDBError.corruptedPage }
      if kind == .free { try check(freePages: value) }
    }
  }

  /// Checks the pages of a large value. Returns the value if `isRead` is true; otherwise reads only the header of its
  /// first page.
  private mutating func large(_ first: UInt64, size: Int, isRead: Bool) throws -> [UInt8] {
    guard first < pageCount, size < Int(pageCount - first) * pageSize else { throw LMDBError.corruptedPage }
    let bytes = try read(isRead ? LMDBPage.headerSize + size : LMDBPage.headerSize, of: first)
    let count = try bytes.withUnsafeBytes {
      try LMDBPage.pageCount(ofLargeValue: size, at: first, header: $0, pageSize: pageSize)
    }
    try markVisited(first, count: count)
    return Array(bytes.dropFirst(LMDBPage.headerSize))
  }

  /// Checks a list of free pages: their number, then each of them.
  private mutating func check(freePages bytes: UnsafeRawBufferPointer) throws {
    func word(_ index: Int) -> UInt64 { bytes.loadUnaligned(fromByteOffset: 8 * index, as: UInt64.self) }
    guard bytes.count >= 8, word(0) <= UInt64(bytes.count / 8 - 1) else { throw LMDBError.corruptedPage }
    var previous = UInt64.max
    for index in 0..<Int(word(0)) {
      // In descending order, on which LMDB's search relies.
      guard word(index + 1) < previous else { throw LMDBError.corruptedPage }
      previous = word(index + 1)
      try markVisited(previous, count: 1)
    }
  }

  private mutating func markVisited(_ page: UInt64, count: Int) throws(LMDBError) {
    guard page >= 2, page < pageCount, UInt64(count) <= pageCount - page else { throw .corruptedPage }
    for number in page..<page + UInt64(count) {
      guard visited.insert(number) else { throw .corruptedPage }
    }
  }

  private func read(_ count: Int, of page: UInt64) throws(LMDBError) -> [UInt8] {
    let bytes = try LMDBFile.read(count, at: page * UInt64(pageSize), of: file)
    guard bytes.count == count else { throw .corruptedPage }
    return bytes
  }
}

/// A set of pages, one bit for each up to the last one in the set.
struct LMDBPageSet {
  private var words: [UInt64] = []

  func contains(_ page: UInt64) -> Bool {
    page / 64 < UInt64(words.count) && words[Int(page / 64)] & (1 << (page % 64)) != 0
  }

  /// Adds a page, and returns whether it was missing.
  mutating func insert(_ page: UInt64) -> Bool {
    let word = Int(page / 64)
    if word >= words.count { words += repeatElement(0, count: max(64, word + 1 - words.count)) }
    defer { words[word] |= 1 << (page % 64) }
    return words[word] & (1 << (page % 64)) == 0
  }
}
