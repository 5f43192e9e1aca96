import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The reads of transactions: the database on the one thread that writes to it.
struct LevelDBEntryReader: EntryReader {
  let handle: LevelDBHandle

  func data(of key: CacheKey) throws -> Data? { try handle.value(of: key) }

  func contains(_ key: CacheKey) throws -> Bool { try handle.header(of: key) != nil }

  func count() throws -> Int { Int(clamping: try handle.metadata()?.count ?? 0) }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    try handle.forEachEntry(from: Array(start.value.utf8)) { key, _ in
      try body(LevelDBEncoding.key(key, path: handle.path))
    }
  }
}
