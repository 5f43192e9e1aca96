import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The contents of a meta page: the state after one transaction.
struct LMDBMetaPage: Hashable {
  let pageSize: Int
  let transaction: UInt64
  let lastPage: UInt64
  let free, main: LMDBTreeRecord
}

/// The beginning of `data.mdb`: two meta pages, one for each of the last two transactions. The layout is that
/// of LMDB 0.9 on 64-bit machines, in the machine's own byte order.
enum LMDBFileHeader {
  /// The contents of the meta page of a transaction, or nil if a later one has overwritten it.
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`.
  static func snapshot(
    of transaction: UInt64, pageSize: Int, fileDescriptor: Int32, path: String
  ) throws -> LMDBMetaPage? {
    let offset = UInt64(pageSize) * (transaction & 1)
    let snapshot = try snapshot(at: offset, of: fileDescriptor, path: path)
    guard snapshot.transaction == transaction, snapshot.lastPage < maximumPages(pageSize) else { return nil }
    return snapshot
  }

  private static let magic: UInt32 = 0xBEEF_C0DE
  private static let version: UInt32 = 1
  /// The flags of a database. The lowest bit is left out: it is a flag of the environment.
  private static let databaseFlags: UInt16 = 0x7E
  private static let metaSize = 136

  private static func maximumPages(_ pageSize: Int) -> UInt64 { (1 << 47) / UInt64(pageSize) }

  /// The contents of the newer meta page.
  static func newest(of file: Int32, path: String) throws -> LMDBMetaPage {
    let first = try snapshot(at: 0, of: file, path: path)
    let pageSize = first.pageSize
    guard (512...65_536).contains(pageSize), pageSize.nonzeroBitCount == 1 else {
      throw corrupted(path, "its page size is \(pageSize)")
    }
    let second = try snapshot(at: UInt64(pageSize), of: file, path: path)
    let isSecondNewer = second.transaction > first.transaction
    let newest = isSecondNewer ? second : first
    // LMDB finds the meta page of a transaction by the lowest bit of its number.
    guard newest.transaction == 0 || newest.transaction & 1 == (isSecondNewer ? 1 : 0),
      newest.pageSize == pageSize, newest.lastPage >= 1, newest.lastPage < maximumPages(pageSize),
      newest.transaction <= 1 << 62,
      newest.main.flags & ~databaseFlags == 0
    else { throw corrupted(path, "its header is corrupted") }
    return newest
  }

  private static func snapshot(at offset: UInt64, of file: Int32, path: String) throws -> LMDBMetaPage {
    let size = LMDBPage.headerSize + metaSize
    let bytes: [UInt8]
    do throws(LMDBError) {
      bytes = try LMDBFile.read(size, at: offset, of: file)
    } catch {
      throw StorageError.lmdb(error, "Reading \(path) failed")
    }
    guard bytes.count == size else { throw corrupted(path, "it ends within its header") }
    return try bytes.withUnsafeBytes { bytes in
      func load<Number: FixedWidthInteger>(_ offset: Int, as type: Number.Type) -> Number {
        bytes.loadUnaligned(fromByteOffset: LMDBPage.headerSize + offset, as: type)
      }
      guard bytes.loadUnaligned(fromByteOffset: 10, as: UInt16.self) & LMDBPage.meta != 0,
        load(0, as: UInt32.self) == magic
      else { throw corrupted(path, "it is not an LMDB file") }
      guard load(4, as: UInt32.self) == version else {
        throw corrupted(path, "its format has version \(load(4, as: UInt32.self)), not \(version)")
      }
      guard load(16, as: UInt64.self) <= 1 << 47 else { throw corrupted(path, "its header is corrupted") }
      let trees = bytes[(LMDBPage.headerSize + 24)...]
      return LMDBMetaPage(
        pageSize: Int(load(24, as: UInt32.self)), transaction: load(128, as: UInt64.self),
        lastPage: load(120, as: UInt64.self), free: LMDBTreeRecord(UnsafeRawBufferPointer(rebasing: trees)),
        main: LMDBTreeRecord(
          UnsafeRawBufferPointer(rebasing: trees.dropFirst(LMDBTreeRecord.encodedSize))))
    }
  }

  static func corrupted(_ path: String, _ reason: String) -> StorageError {
    StorageError(.corrupted, "\(path) cannot be used as an LMDB database: \(reason).")
  }
}
