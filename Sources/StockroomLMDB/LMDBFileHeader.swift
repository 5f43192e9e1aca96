import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The two meta pages at the beginning of `data.mdb`, judged before LMDB sees the file.
///
/// LMDB maps the file and believes it. A page beyond the end of the file ends the process with SIGBUS, and a
/// root that is no page fails an assertion, which aborts it. So a file that would do either is refused first
/// (rule F2). The layout is that of LMDB 0.9 on 64-bit machines, in the machine's own byte order.
enum LMDBFileHeader {
  private struct Meta: Hashable {
    let mapSize, freeRoot, mainRoot, lastPage, transaction: UInt64
    let pageSize: UInt32
    let mainFlags: UInt16
  }

  /// Where one transaction found everything.
  struct Snapshot {
    let pageSize: Int
    let lastPage: UInt64
    let free, main: LMDBTreeCheck.Tree
  }

  /// What the meta page of a transaction says, or nil if that has been written over by a later one.
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`.
  static func snapshot(
    of transaction: UInt64, pageSize: Int, fileDescriptor: Int32, path: String
  ) throws -> Snapshot? {
    let offset = UInt64(pageSize) * (transaction & 1)
    let meta = try meta(at: offset, of: fileDescriptor, path: path)
    guard meta.transaction == transaction, meta.lastPage < (1 << 47) / UInt64(pageSize) else { return nil }
    let trees = try read(2 * LMDBTreeCheck.Tree.size, at: offset + 40, of: fileDescriptor, path: path)
    return trees.withUnsafeBytes {
      Snapshot(
        pageSize: pageSize, lastPage: meta.lastPage, free: .init($0),
        main: .init(UnsafeRawBufferPointer(rebasing: $0[LMDBTreeCheck.Tree.size...])))
    }
  }

  /// Reads and judges the header of an open file that is not empty.
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`.
  static func validate(fileDescriptor: Int32, path: String) throws {
    let first = try meta(at: 0, of: fileDescriptor, path: path)
    let pageSize = first.pageSize
    guard (512...65_536).contains(pageSize), pageSize.nonzeroBitCount == 1 else {
      throw corrupted(path, "its page size is \(pageSize)")
    }
    let second = try meta(at: UInt64(pageSize), of: fileDescriptor, path: path)
    let isSecondNewer = second.transaction > first.transaction
    let newest = isSecondNewer ? second : first
    // LMDB finds the meta page of a transaction by the lowest bit of its number.
    guard newest.transaction == 0 || newest.transaction & 1 == (isSecondNewer ? 1 : 0),
      newest.pageSize == pageSize, newest.lastPage >= 1, newest.lastPage < (1 << 47) / UInt64(pageSize),
      newest.mapSize <= 1 << 47, newest.mainFlags & ~databaseFlags == 0
    else { throw corrupted(path, "its header is damaged") }
    // The size is taken after the meta pages: another process that writes makes the file longer first.
    var status = stat()
    guard fstat(fileDescriptor, &status) == 0 else {
      throw StorageError.posix(errno, "Examining \(path) failed")
    }
    let needed = (newest.lastPage + 1) * UInt64(pageSize)
    guard status.st_size >= needed else {
      throw corrupted(path, "it is cut off: \(status.st_size) of at least \(needed) bytes are left")
    }
    for root in [newest.freeRoot, newest.mainRoot] where root != noPage {
      guard root >= 2, root <= newest.lastPage,
        try isTreePage(root, size: UInt64(pageSize), of: fileDescriptor, path: path)
      else { throw corrupted(path, "a root of its trees is damaged") }
    }
  }

  private static let noPage = UInt64.max
  private static let magic: UInt32 = 0xBEEF_C0DE
  private static let version: UInt32 = 1
  private static let metaFlag: UInt16 = 0x08
  private static let treeFlags: UInt16 = 0x03
  private static let databaseFlags: UInt16 = 0x7E

  /// A page begins with its number (8 bytes), 2 bytes of padding, its flags (2 bytes) and 4 bytes more.
  private static let pageHeaderSize = 16
  private static let metaSize = 136

  private static func meta(at offset: UInt64, of file: Int32, path: String) throws -> Meta {
    let bytes = try read(pageHeaderSize + metaSize, at: offset, of: file, path: path)
    return try bytes.withUnsafeBytes { bytes in
      func load<Number: FixedWidthInteger>(_ offset: Int, as type: Number.Type) -> Number {
        bytes.loadUnaligned(fromByteOffset: pageHeaderSize + offset, as: type)
      }
      guard bytes.loadUnaligned(fromByteOffset: 10, as: UInt16.self) & metaFlag != 0,
        load(0, as: UInt32.self) == magic
      else { throw corrupted(path, "it is no LMDB file") }
      guard load(4, as: UInt32.self) == version else {
        throw corrupted(path, "its format has version \(load(4, as: UInt32.self)), not \(version)")
      }
      return Meta(
        mapSize: load(16, as: UInt64.self), freeRoot: load(64, as: UInt64.self),
        mainRoot: load(112, as: UInt64.self), lastPage: load(120, as: UInt64.self),
        transaction: load(128, as: UInt64.self), pageSize: load(24, as: UInt32.self),
        mainFlags: load(76, as: UInt16.self))
    }
  }

  /// Whether the page knows its own number and is a branch or a leaf.
  private static func isTreePage(_ page: UInt64, size: UInt64, of file: Int32, path: String) throws -> Bool {
    let bytes = try read(pageHeaderSize, at: page * size, of: file, path: path)
    return bytes.withUnsafeBytes {
      $0.loadUnaligned(as: UInt64.self) == page
        && $0.loadUnaligned(fromByteOffset: 10, as: UInt16.self) & treeFlags != 0
    }
  }

  private static func read(_ count: Int, at offset: UInt64, of file: Int32, path: String) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let result = pread(file, &bytes, count, off_t(offset))
    guard result >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed") }
    guard result == count else { throw corrupted(path, "it ends within its header") }
    return bytes
  }

  private static func corrupted(_ path: String, _ reason: String) -> StorageError {
    StorageError(.corrupted, "\(path) cannot be used as an LMDB database: \(reason).")
  }
}
