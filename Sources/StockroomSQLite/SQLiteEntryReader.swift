import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The reads of transactions: the database as seen by the connection that writes, which holds the write lock.
struct SQLiteEntryReader: EntryReader {
  let connection: SQLiteConnection

  func data(of key: CacheKey) throws -> Data? {
    try checkTransaction()
    return try connection.value(of: key)
  }

  func contains(_ key: CacheKey) throws -> Bool {
    try checkTransaction()
    return try connection.exists(key)
  }

  /// After a failed read, SQLite may have ended the transaction: later reads would see another state (rule
  /// T1).
  private func checkTransaction() throws {
    guard connection.isInTransaction else { throw connection.endedTransaction }
  }

  func count() throws -> Int {
    try checkTransaction()
    return try connection.run(.count) { try $0.step() ? Int($0.number(at: 0)) : 0 }
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    try checkTransaction()
    try connection.run(.keysAndValuesFrom) { statement in
      try start.withUTF8 { start in
        try statement.bind(start, at: 1)
        while try statement.step(), try body(statement.key(at: 0)) {}
      }
    }
  }
}
