import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A look at every page that the trees of an environment are made of, before LMDB relies on them.
///
/// LMDB has no sums, and believes what it finds in its map: a page number that leads nowhere, or an offset beyond the
/// page, ends the process with a signal or a failed assertion. After this look nothing that is reached from the roots
/// leads anywhere but where it should (rule F2). What values consist of is not looked at. Costs a read of all pages but
/// those of large values.
struct LMDBTreeCheck {
  /// What the trees begin with: a record of LMDB's, `MDB_db`, of 48 bytes.
  struct Tree {
    let flags: UInt16
    let depth: UInt16
    let entries: UInt64
    let root: UInt64

    static let size = 48

    init(_ bytes: UnsafeRawBufferPointer) {
      flags = bytes.loadUnaligned(fromByteOffset: 4, as: UInt16.self)
      depth = bytes.loadUnaligned(fromByteOffset: 6, as: UInt16.self)
      entries = bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self)
      root = bytes.loadUnaligned(fromByteOffset: 40, as: UInt64.self)
    }
  }

  /// Something is not as LMDB would have left it.
  struct Damage: Error {
    let page: UInt64
    let what: String
  }

  private enum Kind { case free, main, entries }

  private let file: Int32
  private let pageSize: Int
  private let lastPage: UInt64
  /// The pages that have been met. None may be met twice.
  private var isMet: [Bool]

  private let main: Tree
  private let free: Tree
  /// The tree of entries, once the main tree has been walked.
  private var entries: Tree?

  init(file: Int32, _ snapshot: LMDBFileHeader.Snapshot) {
    self.file = file
    (pageSize, lastPage, main, free) = (snapshot.pageSize, snapshot.lastPage, snapshot.main, snapshot.free)
    isMet = [Bool](repeating: false, count: Int(snapshot.lastPage) + 1)
  }

  /// Looks at the main tree, in which another program may have anything.
  ///
  /// - Throws: ``Damage`` or ``LMDBError``.
  mutating func lookAtMainTree() throws {
    // LMDBRecord refuses all others without searching them.
    if main.flags == 0 { try walk(main, .main) }
  }

  /// Looks at everything else, if the environment is Stockroom's.
  ///
  /// - Throws: ``Damage`` or ``LMDBError``.
  mutating func lookAtOtherTrees() throws {
    if let entries {
      guard entries.flags == 0 else {
        throw Damage(page: main.root, what: "a tree has the flags \(entries.flags)")
      }
      try walk(entries, .entries)
    }
    guard free.flags == Self.integerKeys else {
      throw Damage(page: free.root, what: "the tree of free pages has the flags \(free.flags)")
    }
    // The pages that are free come last, since they must be none of the others.
    try walk(free, .free)
  }

  private static let noPage = UInt64.max
  private static let (branch, leaf, overflow): (UInt16, UInt16, UInt16) = (0x01, 0x02, 0x04)
  private static let (bigData, subData): (UInt16, UInt16) = (0x01, 0x02)
  /// What LMDB gives the tree of free pages. Here are also flags of the environment, of which Stockroom sets none that
  /// lasts.
  private static let integerKeys: UInt16 = 0x08
  private static let headerSize = 16
  private static let nodeSize = 8
  /// As many levels as LMDB's cursors have room for.
  private static let maximumDepth: UInt16 = 32

  private mutating func walk(_ tree: Tree, _ kind: Kind) throws {
    if tree.root == Self.noPage {
      if tree.entries != 0 { throw Damage(page: tree.root, what: "a tree with entries has no root") }
      return
    }
    guard tree.depth >= 1, tree.depth <= Self.maximumDepth else {
      throw Damage(page: tree.root, what: "a tree has \(tree.depth) levels")
    }
    let count = try walk(tree.root, level: tree.depth, isRoot: true, kind)
    if count != tree.entries {
      throw Damage(page: tree.root, what: "a tree has \(count) entries instead of \(tree.entries)")
    }
  }

  /// Looks at a page and those below it. Gives the number of entries.
  private mutating func walk(_ page: UInt64, level: UInt16, isRoot: Bool = false, _ kind: Kind) throws
    -> UInt64
  {
    try meet(page, count: 1)
    let bytes = try read(pageSize, of: page)
    return try bytes.withUnsafeBytes { bytes in
      let isLeaf = level == 1
      let nodes = try Self.nodes(of: page, in: bytes, isLeaf: isLeaf)
      if nodes.count < (isLeaf ? (isRoot ? 0 : 1) : 2) { throw Damage(page: page, what: "it is too empty") }
      if isLeaf {
        for node in nodes { try judge(node, of: page, in: bytes, kind) }
        return UInt64(nodes.count)
      }
      var count: UInt64 = 0
      for node in nodes { count += try walk(node.page, level: level - 1, kind) }
      return count
    }
  }

  private struct Node {
    let offset: Int
    let keySize: Int
    let size: Int
    let flags: UInt16
    let dataSize: Int
    /// The page below, in a branch.
    let page: UInt64

    var dataOffset: Int { offset + LMDBTreeCheck.nodeSize + keySize }
  }

  /// The nodes of a page, which fill it from their beginning to its end.
  private static func nodes(of page: UInt64, in bytes: UnsafeRawBufferPointer, isLeaf: Bool) throws -> [Node]
  {
    func number(_ offset: Int) -> Int { Int(bytes.loadUnaligned(fromByteOffset: offset, as: UInt16.self)) }
    guard bytes.loadUnaligned(as: UInt64.self) == page, number(10) == Int(isLeaf ? leaf : branch) else {
      throw Damage(page: page, what: "it is not the page that it should be")
    }
    let (lower, upper) = (number(12), number(14))
    guard lower >= headerSize, lower <= upper, upper <= bytes.count, lower.isMultiple(of: 2) else {
      throw Damage(page: page, what: "its bounds are wrong")
    }
    var nodes: [Node] = []
    for index in 0..<((lower - headerSize) / 2) {
      let offset = number(headerSize + 2 * index)
      guard offset >= upper, offset + nodeSize <= bytes.count else {
        throw Damage(page: page, what: "a node lies outside")
      }
      let (low, high, flags, keySize) = (
        number(offset), number(offset + 2), number(offset + 4), number(offset + 6)
      )
      // No tree here has several values for a key, which is what the other flag says.
      guard !isLeaf || [0, Int(bigData), Int(subData)].contains(flags) else {
        throw Damage(page: page, what: "an entry has the flags \(flags)")
      }
      let dataSize = low | high << 16
      let inPage = !isLeaf ? 0 : UInt16(flags) & bigData != 0 ? 8 : dataSize
      let node = Node(
        offset: offset, keySize: keySize, size: (nodeSize + keySize + inPage + 1) & ~1, flags: UInt16(flags),
        dataSize: dataSize, page: UInt64(low) | UInt64(high) << 16 | UInt64(flags) << 32)
      guard keySize <= CacheKey.maximumLength, keySize > 0 || (!isLeaf && index == 0),
        offset + node.size <= bytes.count
      else { throw Damage(page: page, what: "a node is too large") }
      nodes.append(node)
    }
    var end = upper
    for node in nodes.sorted(by: { $0.offset < $1.offset }) {
      guard node.offset == end else { throw Damage(page: page, what: "nodes overlap") }
      end += node.size
    }
    guard end == bytes.count else { throw Damage(page: page, what: "nodes do not fill it") }
    return nodes
  }

  /// Judges what an entry consists of.
  private mutating func judge(
    _ node: Node, of page: UInt64, in bytes: UnsafeRawBufferPointer, _ kind: Kind
  ) throws {
    if node.flags == Self.bigData {
      let first = bytes.loadUnaligned(fromByteOffset: node.dataOffset, as: UInt64.self)
      let value = try large(first, size: node.dataSize, isRead: kind == .free)
      if kind == .free { try value.withUnsafeBytes { try judge(freePages: $0, of: page) } }
      return
    }
    let value = UnsafeRawBufferPointer(rebasing: bytes[node.dataOffset..<node.dataOffset + node.dataSize])
    switch kind {
    case .main:
      let key = bytes[node.offset + Self.nodeSize..<node.dataOffset]
      guard node.flags == Self.subData, key.elementsEqual(LMDBRecord.entriesName.utf8) else { return }
      guard value.count == Tree.size else { throw Damage(page: page, what: "a tree has no root") }
      entries = Tree(value)
    case .free, .entries:
      guard node.flags == 0 else { throw Damage(page: page, what: "an entry has the flags \(node.flags)") }
      if kind == .free { try judge(freePages: value, of: page) }
    }
  }

  /// Looks at the pages of a large value. Reads it, or else only what tells that it is one.
  private mutating func large(_ first: UInt64, size: Int, isRead: Bool) throws -> [UInt8] {
    let least = (Self.headerSize + size + pageSize - 1) / pageSize
    guard first <= lastPage else { throw Damage(page: first, what: "there is no such page") }
    let bytes = try read(isRead ? Self.headerSize + size : Self.headerSize, of: first)
    let (isRight, count) = bytes.withUnsafeBytes {
      let count = Int($0.loadUnaligned(fromByteOffset: 12, as: UInt32.self))
      // A value that was overwritten by a smaller one in the same transaction keeps the pages of the larger one.
      let isRight =
        $0.loadUnaligned(as: UInt64.self) == first
        && $0.loadUnaligned(fromByteOffset: 10, as: UInt16.self) == Self.overflow && count >= least
      return (isRight, count)
    }
    guard isRight else { throw Damage(page: first, what: "it is not the large value that it should be") }
    try meet(first, count: count)
    return Array(bytes.dropFirst(Self.headerSize))
  }

  /// A list of pages that are free: their number, then each of them.
  private mutating func judge(freePages bytes: UnsafeRawBufferPointer, of page: UInt64) throws {
    func word(_ index: Int) -> UInt64 { bytes.loadUnaligned(fromByteOffset: 8 * index, as: UInt64.self) }
    guard bytes.count >= 8, word(0) <= UInt64(bytes.count / 8 - 1) else {
      throw Damage(page: page, what: "a list of free pages is too long")
    }
    var previous = UInt64.max
    for index in 0..<Int(word(0)) {
      // In descending order, by which LMDB searches them.
      guard word(index + 1) < previous else {
        throw Damage(page: page, what: "a list of free pages is in no order")
      }
      previous = word(index + 1)
      try meet(previous, count: 1)
    }
  }

  private mutating func meet(_ page: UInt64, count: Int) throws {
    guard page >= 2, page <= lastPage, UInt64(count) <= lastPage - page + 1 else {
      throw Damage(page: page, what: "there is no such page")
    }
    for index in Int(page)..<Int(page) + count {
      if isMet[index] { throw Damage(page: UInt64(index), what: "it is used twice") }
      isMet[index] = true
    }
  }

  private func read(_ count: Int, of page: UInt64) throws -> [UInt8] {
    var failure: Int32 = 0
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initializedCount in
      let result = pread(file, buffer.baseAddress, count, off_t(page) * off_t(pageSize))
      if result < 0 { failure = errno }
      initializedCount = max(0, result)
    }
    if failure != 0 { throw LMDBError(code: failure) }
    guard bytes.count == count else { throw Damage(page: page, what: "it is cut off") }
    return bytes
  }
}
