import StockroomCPostgreSQL
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The rows that a statement has returned, in binary format.
final class PostgreSQLResult {
  private let handle: OpaquePointer

  /// Takes ownership of the result, and frees it on deinitialization.
  init(_ handle: OpaquePointer) { self.handle = handle }

  deinit { PQclear(handle) }

  var status: ExecStatusType { PQresultStatus(handle) }

  var rowCount: Int { Int(PQntuples(handle)) }
  var columnCount: Int { Int(PQnfields(handle)) }

  /// The error of the statement. Its text is empty if the server has reported none.
  var failure: PostgreSQLFailure {
    let text = DiagnosticField.message.text(in: handle) ?? String(cString: PQresultErrorMessage(handle))
    let detail = DiagnosticField.detail.text(in: handle).map { " \($0)" } ?? ""
    let state = DiagnosticField.sqlState.text(in: handle)
    return PostgreSQLFailure(
      sqlState: state, text: (text + detail).inOneLine,
      isConnectionLost: PostgreSQLFailure.endsSession(state),
      function: DiagnosticField.function.text(in: handle))
  }

  // MARK: Values

  func isNull(_ row: Int, _ column: Int) -> Bool { PQgetisnull(handle, Int32(row), Int32(column)) != 0 }

  /// The bytes of a value, valid as long as the result exists.
  func bytes(_ row: Int, _ column: Int) -> UnsafeRawBufferPointer {
    let count = Int(PQgetlength(handle, Int32(row), Int32(column)))
    return UnsafeRawBufferPointer(start: PQgetvalue(handle, Int32(row), Int32(column)), count: count)
  }

  func data(_ row: Int, _ column: Int) -> Data { Data(bytes(row, column)) }

  /// - Throws: `StorageError` with code `corrupted` if the column is not a number of 64 bits.
  func number(_ row: Int, _ column: Int) throws -> Int64 {
    let bytes = bytes(row, column)
    guard bytes.count == 8, !isNull(row, column) else { throw Self.unexpected }
    return Int64(bigEndian: bytes.loadUnaligned(as: Int64.self))
  }

  /// Whether the column exists and is true.
  func isTrue(_ row: Int, _ column: Int) -> Bool { bytes(row, column).first == 1 }

  func text(_ row: Int, _ column: Int) -> String? {
    isNull(row, column) ? nil : String(decoding: bytes(row, column), as: UTF8.self)
  }

  /// - Throws: `StorageError` with code `corrupted` if the column is not a key.
  func key(_ row: Int, _ column: Int) throws -> CacheKey {
    guard let key = CacheKey(utf8: bytes(row, column)) else {
      throw StorageError(.corrupted, "The table of entries has a key that is not UTF-8.")
    }
    return key
  }

  func header(_ row: Int, created: Int, updated: Int, sequence: Int?) throws -> EntryHeader {
    EntryHeader(
      createdAt: Timestamp(nanoseconds: try number(row, created)),
      updatedAt: Timestamp(nanoseconds: try number(row, updated)),
      sequence: try sequence.map { UInt64(clamping: try number(row, $0)) } ?? 0)
  }

  private static let unexpected = StorageError(
    .corrupted, "The server has returned a column of another type than the table of entries has.")
}

/// The fields of an error or a notice of the server:
/// https://www.postgresql.org/docs/15/protocol-error-fields.html libpq's names for these codes are macros
/// that Swift does not import.
enum DiagnosticField: Unicode.Scalar {
  case message = "M"
  case detail = "D"
  case sqlState = "C"
  /// The function in the source code of the server.
  case function = "R"

  func text(in result: OpaquePointer?) -> String? {
    PQresultErrorField(result, Int32(rawValue.value)).map { String(cString: $0) }
  }
}
