import StockroomCSQLite
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A prepared statement that is being executed: its bound values and its current row.
///
/// Bytes bound by ``bind(_:at:)`` are not copied, so they must stay valid until the last ``step()``.
struct SQLiteStatement {
  let handle: OpaquePointer
  let connection: SQLiteConnection

  /// Moves to the next row. Returns false when there is none.
  func step() throws -> Bool {
    switch sqlite3_step(handle) {
    case SQLITE_ROW: return true
    case SQLITE_DONE: return false
    case let failure: throw connection.error(failure, "Reading or writing")
    }
  }

  /// Ends the execution. An error of the last step is not thrown again.
  func reset() { sqlite3_reset(handle) }

  func bind(_ number: Int64, at index: Int32) throws {
    try check(sqlite3_bind_int64(handle, index, number))
  }

  func bind(_ bytes: UnsafeRawBufferPointer, at index: Int32) throws {
    // A nil pointer would bind NULL, and an empty buffer may have one.
    guard let start = bytes.baseAddress, !bytes.isEmpty else {
      return try check(sqlite3_bind_zeroblob(handle, index, 0))
    }
    try check(sqlite3_bind_blob64(handle, index, start, UInt64(bytes.count), nil))
  }

  /// Binds a copy of the bytes.
  func bindCopy(_ bytes: UnsafeRawBufferPointer, at index: Int32) throws {
    guard let start = bytes.baseAddress, !bytes.isEmpty else { return try bind(bytes, at: index) }
    // SQLITE_TRANSIENT, which Swift cannot import.
    let copying = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    try check(sqlite3_bind_blob64(handle, index, start, UInt64(bytes.count), copying))
  }

  /// The number in a column of the current row.
  func number(at column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }

  /// The time in a column of the current row.
  func date(at column: Int32) -> Date { Timestamp(nanoseconds: number(at: column)).date }

  /// The value in a column of the current row, copied. The column may refer to the table of large values.
  func value(at column: Int32) throws -> Data {
    guard sqlite3_column_type(handle, column) == SQLITE_INTEGER else { return try data(at: column) }
    let number = number(at: column)
    // While this statement is in progress, the other one sees the same state.
    return try connection.run(.largeValue) { statement in
      try statement.bind(number, at: 1)
      guard try statement.step() else {
        throw StorageError(.corrupted, "The database \(connection.path) has lost a value.")
      }
      return try statement.data(at: 0)
    }
  }

  /// The bytes in a column of the current row, copied.
  func data(at column: Int32) throws -> Data {
    let bytes = try bytes(at: column)
    return bytes.baseAddress.map { Data(bytes: $0, count: bytes.count) } ?? Data()
  }

  /// The key in a column of the current row.
  func key(at column: Int32) throws -> CacheKey {
    guard let key = CacheKey(utf8: try bytes(at: column)) else {
      throw StorageError(.corrupted, "A key in \(connection.path) is not UTF-8.")
    }
    return key
  }

  /// The bytes in a column of the current row, which are valid until the next step.
  func bytes(at column: Int32) throws -> UnsafeRawBufferPointer {
    // The pointer first: asking for it may move the bytes.
    let start = sqlite3_column_blob(handle, column)
    let count = Int(sqlite3_column_bytes(handle, column))
    // The pointer is nil both for an empty value and if there is not enough memory.
    if start == nil, sqlite3_errcode(sqlite3_db_handle(handle)) == SQLITE_NOMEM {
      throw connection.error(SQLITE_NOMEM, "Reading a value")
    }
    return UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count)
  }

  private func check(_ result: Int32) throws {
    guard result == SQLITE_OK else { throw connection.error(result, "Passing a value to SQLite") }
  }
}
