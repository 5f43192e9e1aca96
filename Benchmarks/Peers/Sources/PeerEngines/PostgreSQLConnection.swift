import Foundation
import PeerPostgreSQL
import StockroomCore

/// A connection and its statements, prepared once. Calls block the calling thread.
final class PostgreSQLConnection {
  private let handle: OpaquePointer
  private let table: String

  /// - Parameter table: Created if it is missing.
  init(_ connection: String, table: String, durability: Durability) throws {
    guard let handle = PQconnectdb(connection) else {
      throw StorageError.peer("PostgreSQL's client has no memory.")
    }
    // From here on, an error releases the handle.
    self.handle = handle
    self.table = table
    guard PQstatus(handle) == CONNECTION_OK else {
      throw StorageError.peer("Connecting to PostgreSQL failed.")
    }
    try run("SET client_min_messages = warning")
    try run("SET synchronous_commit = \(durability == .full ? "on" : "off")")
    try run("CREATE TABLE IF NOT EXISTS \(table) (key bytea PRIMARY KEY, value bytea NOT NULL)")
    try run("ALTER TABLE \(table) ALTER COLUMN value SET STORAGE EXTERNAL")
    try run("CREATE TEMPORARY TABLE copied (key bytea, value bytea)")
    for (name, statement) in [
      ("get", "SELECT value FROM \(table) WHERE key = $1::bytea"),
      (
        "put",
        "INSERT INTO \(table) VALUES ($1::bytea, $2::bytea) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
      ),
      ("remove", "DELETE FROM \(table) WHERE key = $1::bytea"),
      ("removeMany", "DELETE FROM \(table) WHERE key = ANY ($1::bytea[])"),
      ("removeAll", "DELETE FROM \(table)"),
      (
        "getMany",
        "SELECT r.n, t.value FROM unnest($1::bytea[]) WITH ORDINALITY AS r(key, n) JOIN \(table) AS t ON t.key = r.key"
      ),
      (
        "putMany",
        "INSERT INTO \(table) SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
      ),
      ("all", "SELECT key, value FROM \(table)"),
      ("count", "SELECT count(*) FROM \(table)"),
      ("range", "SELECT key, value FROM \(table) WHERE key >= $1::bytea ORDER BY key LIMIT $2::bigint"),
    ] {
      let result = PQprepare(handle, name, statement, 0, nil)
      defer { PQclear(result) }
      try check(result)
    }
  }

  deinit { PQfinish(handle) }

  private func check(_ result: OpaquePointer?) throws {
    let status = PQresultStatus(result)
    guard status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_COPY_IN else {
      throw StorageError.peer(String(cString: PQerrorMessage(handle)))
    }
  }

  func run(_ statement: String) throws {
    let result = PQexec(handle, statement)
    defer { PQclear(result) }
    try check(result)
  }

  /// Executes a prepared statement, in binary format.
  func execute<Rows>(
    _ name: String, _ parameters: [UnsafeRawBufferPointer] = [], _ body: (OpaquePointer) throws -> Rows
  ) throws -> Rows {
    let values = parameters.map { $0.baseAddress?.assumingMemoryBound(to: CChar.self) ?? Self.empty }
    let lengths = parameters.map { Int32($0.count) }
    let formats = [Int32](repeating: 1, count: parameters.count)
    let result = PQexecPrepared(
      handle, name, Int32(parameters.count), values.map { Optional($0) }, lengths, formats, 1)
    defer { PQclear(result) }
    try check(result)
    guard let result else { throw StorageError.peer("PostgreSQL has returned nothing.") }
    return try body(result)
  }

  /// Stands for an empty value, since a nil pointer means NULL.
  nonisolated(unsafe) private static let empty = UnsafePointer(
    UnsafeMutablePointer<CChar>.allocate(capacity: 1))

  /// Copies the entries into a temporary table with COPY, and merges them from there.
  func copy(_ dataAndKeys: [(key: CacheKey, data: Data)]) throws {
    try run("BEGIN")
    do {
      try run("COPY copied FROM STDIN (FORMAT binary)")
      var bytes: [UInt8] = Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0] + [UInt8](repeating: 0, count: 8)
      for (key, data) in dataAndKeys {
        bytes += [0, 2]
        key.withBytes { bytes.append(field: $0) }
        data.withUnsafeBytes { bytes.append(field: $0) }
      }
      bytes += [0xFF, 0xFF]
      let sent = bytes.withUnsafeBytes {
        PQputCopyData(handle, $0.baseAddress?.assumingMemoryBound(to: CChar.self), Int32($0.count))
      }
      guard sent == 1, PQputCopyEnd(handle, nil) == 1 else {
        throw StorageError.peer(String(cString: PQerrorMessage(handle)))
      }
      while let result = PQgetResult(handle) {
        defer { PQclear(result) }
        try check(result)
      }
      try run(
        "INSERT INTO \(table) SELECT * FROM copied ON CONFLICT (key) DO UPDATE SET value = excluded.value; TRUNCATE copied; COMMIT"
      )
    } catch {
      try run("ROLLBACK")
      throw error
    }
  }
}

extension [UInt8] {
  /// Appends a length and the bytes, in the binary format of COPY and of arrays.
  mutating func append(field: UnsafeRawBufferPointer) {
    Swift.withUnsafeBytes(of: Int32(field.count).bigEndian) { append(contentsOf: $0) }
    append(contentsOf: field)
  }

  /// The header of an array of `bytea` in binary format, to which the elements are appended.
  static func byteArray(count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    for word in [1, 0, 17, Int32(count), 1] {
      Swift.withUnsafeBytes(of: word.bigEndian) { bytes.append(contentsOf: $0) }
    }
    return bytes
  }
}
