import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The reads of transactions: the table as seen by the connection that writes, which blocks all other
/// writers.
final class PostgreSQLEntryReader: EntryReader {
  private struct Scan {
    /// The next keys.
    var upcoming: ArraySlice<CacheKey> = []
    /// Values that have been read ahead.
    var values: [CacheKey: Data] = [:]
    /// The number of values that are read at once: one at first, since the scan may need no more.
    var readAhead = 1
  }

  private let connection: PostgreSQLConnection
  private let timeout: Duration
  /// The value of ``PostgreSQLConnection/timeWaited`` at which the time for all answers is used up.
  private let end: Duration
  private let scan = MutexProtected(Scan())
  private let firstFailure = MutexProtected<(any Error)?>(nil)

  /// - Parameters:
  ///   - timeout: The time limit of each answer: the body's own time does not count.
  ///   - limit: The time limit of all answers together.
  init(_ connection: PostgreSQLConnection, waiting timeout: Duration, atMost limit: Duration) {
    self.connection = connection
    self.timeout = timeout
    end = connection.timeWaited + limit
  }

  /// The deadline of the next answer.
  private var deadline: ContinuousClock.Instant { .now + min(timeout, end - connection.timeWaited) }

  /// The first error. The transaction can then no longer be used, and all of its reads throw the same error.
  var failure: (any Error)? { firstFailure.withLock { $0 } }

  private func withConnection<Result>(
    _ body: (PostgreSQLConnection, ContinuousClock.Instant) throws -> Result
  ) throws -> Result {
    if let failure { throw failure }
    do {
      return try body(connection, deadline)
    } catch {
      let error: any Error =
        (error as? PostgreSQLFailure).map {
          StorageError.postgreSQL($0, "Reading in a transaction failed")
        } ?? error
      firstFailure.withLock { $0 = $0 ?? error }
      throw error
    }
  }

  func data(of key: CacheKey) throws -> Data? {
    if let data = scan.withLock({ $0.values.removeValue(forKey: key) }) { return data }
    let upcoming = scan.withLock { Array($0.upcoming.drop { $0 < key }.prefix($0.readAhead)) }
    if upcoming.first == key { return try readAhead(upcoming)[key] }
    return try withConnection { connection, deadline in
      try connection.run([.init(.value, .key(key))], until: deadline).first.flatMap {
        $0.rowCount == 0 ? nil : $0.data(0, 0)
      }
    }
  }

  func data(of keys: [CacheKey]) throws -> [Data?] {
    try withConnection { connection, _ in
      try connection.rowsInTransaction(of: .values, keys, until: { deadline }) { result, keys in
        try result.positions(in: keys).map { $0.map { result.data($0, 1) } }
      }
    }
  }

  /// Reads the values of several keys at once, and keeps them: a scan requests one value after another.
  private func readAhead(_ keys: [CacheKey]) throws -> [CacheKey: Data] {
    let result = try withConnection { connection, deadline in
      try connection.run([.init(.values, PostgreSQLArray.keys(keys))], until: deadline).first
    }
    var values: [CacheKey: Data] = [:]
    for (index, row) in try (result?.positions(in: keys) ?? []).enumerated() {
      if let result, let row { values[keys[index]] = result.data(row, 1) }
    }
    let size = values.values.reduce(0) { $0 + $1.count }
    scan.withLock { scan in
      scan.values = values
      let fitting = Self.readAheadSize / max(1, size / keys.count)
      scan.readAhead = max(1, min(2 * scan.readAhead, Self.mostReadAhead, fitting))
    }
    return values
  }

  private static let mostReadAhead = 64
  /// The approximate number of bytes that are read ahead.
  private static let readAheadSize = 4 << 20

  func contains(_ key: CacheKey) throws -> Bool {
    try withConnection { connection, deadline in
      try connection.run([.init(.existing, PostgreSQLArray.keys([key]))], until: deadline).first?.rowCount
        == 1
    }
  }

  func count(of keys: [CacheKey]) throws -> Int {
    try withConnection { connection, _ in
      try connection.rowsInTransaction(of: .existing, keys, until: { deadline }) { result, _ in
        [result.rowCount]
      }.reduce(0, +)
    }
  }

  func count() throws -> Int {
    try withConnection { connection, deadline in
      try connection.run([.init(.count)], until: deadline).first.map { Int(try $0.number(0, 0)) } ?? 0
    }
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    defer { scan.withLock { $0 = Scan() } }
    try withConnection { connection, _ in
      try connection.forEachRowInTransaction(
        of: .init(.declareKeysFrom, .key(start)), until: { deadline }
      ) { result, row in
        if row == 0 {
          let keys = try (0..<result.rowCount).map { try result.key($0, 0) }
          scan.withLock { $0.upcoming = keys[...] }
        }
        return try body(result.key(row, 0))
      }
    }
  }
}
