import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PostgreSQLConnection {
  /// The results of `transform` for all rows of a cursor, in one snapshot. Fetches portions of several
  /// megabytes, each while the one before is processed.
  func rows<Row>(
    of declaration: Step, until deadline: ContinuousClock.Instant, isWhole: Bool = true,
    _ transform: (PostgreSQLResult, Int) throws -> Row?
  ) throws -> [Row] {
    var rows: [Row] = []
    try forEachRow(of: declaration, until: deadline, isWhole: isWhole) { result, row in
      if let row = try transform(result, row) { rows.append(row) }
      return true
    }
    return rows
  }

  /// Calls `body` with each row of a cursor until it returns false.
  ///
  /// - Parameter isWhole: Whether the whole table is read, for which the server need not use the index.
  private func forEachRow(
    of declaration: Step, until deadline: ContinuousClock.Instant, isWhole: Bool,
    _ body: (PostgreSQLResult, Int) throws -> Bool
  ) throws {
    var portion = PostgreSQLPortion.some
    var opening = [Step(.beginReading)]
    if isWhole { opening.append(Step(.allowSequentialScans)) }
    try discardingOnFailure {
      var result = try run(opening + [declaration, Step(portion.statement)], until: deadline).last
      while let current = result, current.rowCount > 0 {
        let isLast = current.rowCount < portion.rows
        portion = PostgreSQLPortion(rowSize: current.averageRowSize)
        // Rows that have arrived count as in time, but no more are requested.
        guard isLast || ContinuousClock.now < deadline else {
          throw PostgreSQLFailure(
            sqlState: nil, text: "the server has not sent everything in time", isConnectionLost: true)
        }
        // The server prepares the next portion while this one is processed.
        let next: Sent? = try isLast ? nil : send([Step(portion.statement)], until: deadline)
        var goesOn = true
        for row in 0..<current.rowCount where goesOn { goesOn = try body(current, row) }
        result = try next.flatMap { try receive($0, until: deadline).last }
        if !goesOn { break }
      }
      _ = try run([Step(.commit)], until: deadline)
    }
  }

  /// Calls `body`, which may run statements too, with each row of a cursor until it returns false, in the
  /// transaction in progress. If this throws, that transaction can no longer be used.
  ///
  /// - Parameter deadline: The deadline of the next answer.
  func forEachRowInTransaction(
    of declaration: Step, until deadline: () -> ContinuousClock.Instant,
    _ body: (PostgreSQLResult, Int) throws -> Bool
  ) throws {
    var portion = PostgreSQLPortion.some
    var steps = [declaration, Step(portion.statement)]
    var goesOn = true
    while goesOn, let result = try run(steps, until: deadline()).last {
      for row in 0..<result.rowCount where goesOn { goesOn = try body(result, row) }
      if result.rowCount < portion.rows { break }
      portion = PostgreSQLPortion(rowSize: result.averageRowSize)
      steps = [Step(portion.statement)]
    }
    _ = try run([Step(.closeRows)], until: deadline())
  }

  /// After a failure in the middle of a transaction, the connection cannot be used any more.
  private func discardingOnFailure<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      discard()
      throw error
    }
  }

  /// The results of `transform` for the rows of a statement for portions of the keys, all in one snapshot.
  func rows<Row>(
    of statement: PostgreSQLStatement, _ keys: [CacheKey], until deadline: ContinuousClock.Instant,
    _ transform: (_ result: PostgreSQLResult, _ keys: ArraySlice<CacheKey>) throws -> [Row]
  ) throws -> [Row] {
    if keys.count <= Self.keysPerStatement {
      guard let result = try run([Step(statement, PostgreSQLArray.keys(keys))], until: deadline).first else {
        return []
      }
      return try transform(result, keys[...])
    }
    return try discardingOnFailure {
      _ = try run([Step(.beginReading)], until: deadline)
      let rows = try rowsInTransaction(of: statement, keys, until: { deadline }, transform)
      _ = try run([Step(.commit)], until: deadline)
      return rows
    }
  }

  /// The results of `transform` for the rows of a statement for portions of the keys, in the transaction that
  /// has begun.
  ///
  /// - Parameter deadline: The deadline of the next answer.
  func rowsInTransaction<Row>(
    of statement: PostgreSQLStatement, _ keys: [CacheKey], until deadline: () -> ContinuousClock.Instant,
    _ transform: (_ result: PostgreSQLResult, _ keys: ArraySlice<CacheKey>) throws -> [Row]
  ) throws -> [Row] {
    var rows: [Row] = []
    var start = 0
    while start < keys.count {
      let portion = keys[start..<min(start + Self.keysPerStatement, keys.count)]
      if let result = try run([Step(statement, PostgreSQLArray.keys(portion))], until: deadline()).first {
        rows += try transform(result, portion)
      }
      start = portion.endIndex
    }
    return rows
  }

  private static let keysPerStatement = 16_384

  /// The keys and values of a range, in byte order of keys.
  func scan(
    _ range: KeyRange, limit: Int?, until deadline: ContinuousClock.Instant
  ) throws -> [(key: CacheKey, data: Data)] {
    let cursor = KeyRangeCursor(range)
    let limit = max(0, limit ?? .max)
    var found: [(key: CacheKey, data: Data)] = []
    if limit == 0 { return found }
    try forEachRow(of: range.declaration(limit: limit), until: deadline, isWhole: false) { result, row in
      try cursor.collect(result.bytes(row, 0), into: &found, limit: limit) {
        (try result.key(row, 0), result.data(row, 1))
      }
    }
    return found
  }
}

extension KeyRange {
  /// A cursor over the range.
  func declaration(limit: Int) -> PostgreSQLConnection.Step {
    let start = Array((prefix ?? "").utf8)
    // After every key with this prefix: the byte does not occur in UTF-8.
    let end = start + [0xFF]
    let last = upTo.map { Array($0.value.utf8) }.flatMap { $0.lexicographicallyPrecedes(end) ? $0 : nil }
    return PostgreSQLConnection.Step(
      .declareRange, PostgreSQLParameter(bytes: start),
      after.map { .key($0) } ?? PostgreSQLParameter(bytes: []), PostgreSQLParameter(bytes: last ?? end),
      .number(Int64(limit)))
  }
}

extension PostgreSQLResult {
  /// The average number of bytes of a row, estimated from the first ones.
  fileprivate var averageRowSize: Int {
    let sample = min(rowCount, 64)
    let total = (0..<sample).reduce(0) { total, row in
      total + (0..<columnCount).reduce(0) { $0 + bytes(row, $1).count }
    }
    return max(1, total / max(1, sample))
  }
}
