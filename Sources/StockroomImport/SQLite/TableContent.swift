import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How a library stores entries in a table.
struct TableLayout: Sendable {
  let value: String
  let createdAt: String
  /// Nil if there is only one time.
  let updatedAt: String?
  /// Whether a row without a value is that of a removed entry.
  let hasRemovedRows: Bool
  let date: @Sendable (_ row: SourceRow, _ column: Int32) -> Date?

  var columns: Set<String> { Set(["key", value, createdAt] + [updatedAt].compactMap(\.self)) }

  static let bodega = TableLayout(
    value: "value", createdAt: "createdAt", updatedAt: "updatedAt", hasRemovedRows: false,
    date: { $0.text(at: $1).flatMap(SourceDate.date(iso8601:)) })

  static let persistentCache = TableLayout(
    value: "data", createdAt: "createdAt", updatedAt: nil, hasRemovedRows: true,
    date: { $0.number(at: $1).flatMap(SourceDate.date(secondsSince1970:)) })
}

/// The entries in a table of a database.
struct TableContent: ImportContent {
  private struct Row {
    let number: Int64
    let createdAt: Date
    let updatedAt: Date
  }

  private let database: SourceDatabase
  private let sql: String
  private let rows: [Row]
  var count: Int { rows.count }
  let omissions: [String] = []

  /// Reads and checks everything except the values. O(N log N).
  ///
  /// - Throws: `StorageError` with code `corrupted` that names the row.
  init(of table: String, _ layout: TableLayout, in database: SourceDatabase) throws {
    self.database = database
    let quoted = "\"\(table.replacingScalar("\"", with: "\"\""))\""
    // The rowid, by a name that is not a column of the layout.
    sql = "SELECT key, \(layout.value) FROM \(quoted) WHERE _rowid_ = ?"
    var rows: [Row] = []
    try database.rows(
      """
      SELECT _rowid_, key, typeof(\(layout.value)), \(layout.createdAt), \(layout.updatedAt ?? layout.createdAt)
      FROM \(quoted)
      """
    ) { row in
      let number = row.integer(at: 0) ?? 0
      func corrupted(_ what: String) -> StorageError {
        StorageError(
          .corrupted, "\(database.path) is corrupted: row \(number) of the table \(quoted) \(what).")
      }
      guard row.text(at: 1) != nil else { throw corrupted("has a key that is not text") }
      let kind = row.text(at: 2)
      if layout.hasRemovedRows, kind == "null" { return }
      guard kind == "blob" else { throw corrupted("has a value of type \(kind ?? "unknown"), not a blob") }
      guard let createdAt = layout.date(row, 3), let updatedAt = layout.date(row, 4) else {
        throw corrupted("has a time that cannot be read")
      }
      rows.append(Row(number: number, createdAt: createdAt, updatedAt: updatedAt))
    }
    // Rows with the same creation time, such as that of the table, are sorted by row number: the order in which they
    // were last written.
    self.rows = rows.sorted { ($0.createdAt, $0.number) < ($1.createdAt, $1.number) }
  }

  func key(at index: Int) throws -> CacheKey {
    try row(at: index) { row in row.text(at: 0).map(CacheKey.init(verbatim:)) }
  }

  func entry(at index: Int) throws -> StorageEntry {
    try row(at: index) { row in
      guard let key = row.text(at: 0), let data = row.blob(at: 1) else { return nil }
      return StorageEntry(
        key: CacheKey(verbatim: key), data: data, createdAt: rows[index].createdAt,
        updatedAt: rows[index].updatedAt)
    }
  }

  private func row<Result>(at index: Int, _ body: (SourceRow) -> Result?) throws -> Result {
    var result: Result?
    try database.rows(sql, binding: .number(rows[index].number)) { result = body($0) }
    guard let result else {
      throw StorageError(.corrupted, "\(database.path) is corrupted: row \(rows[index].number) is missing.")
    }
    return result
  }
}
