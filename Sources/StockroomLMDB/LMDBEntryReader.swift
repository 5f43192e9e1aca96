import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The reads of transactions: the state after the latest commit, which remains the latest while the reader's
/// thread holds LMDB's write lock.
struct LMDBEntryReader: EntryReader {
  let snapshot: LMDBSnapshot
  let directory: String

  func data(of key: CacheKey) throws -> Data? { try reading { try snapshot.entry(of: key)?.data } }

  func contains(_ key: CacheKey) throws -> Bool { try reading { try snapshot.entry(of: key) != nil } }

  func count() throws -> Int { snapshot.count }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    try reading {
      var cursor = try start.withUTF8 { start in try LMDBCursor(snapshot.tree, from: start) }
      while let (key, _) = try cursor.next(), try body(CacheKey(stored: key)) {}
    }
  }

  private func reading<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      throw StorageError.fromTransaction(error, "Reading the LMDB database in \(directory) failed")
    }
  }
}
