import StockroomCore

/// The layout of a Stockroom database, and how it is recognized.
enum SQLiteEncoding {
  /// One tree in the order of keys holds the entries, so that finding one is one search, and consecutive
  /// entries are adjacent. Such a tree is efficient for rows that are small compared with a page
  /// (https://sqlite.org/withoutrowid.html, section 3), so for a large value, `value` is the number of its
  /// row in a separate table.
  ///
  /// `key` is a BLOB, compared byte by byte, including NUL (K2). `sequence` increases with each first write
  /// of a key (R6), and none is greater than the one in `metadata`. `created` is in nanoseconds since 1970;
  /// the last write was `age` nanoseconds later, which takes no space as long as there was only one.
  static let schema = [
    """
    CREATE TABLE entries (
      key BLOB PRIMARY KEY,
      sequence INTEGER NOT NULL,
      created INTEGER NOT NULL,
      age INTEGER NOT NULL,
      value BLOB NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE large_values (number INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE metadata (sequence INTEGER NOT NULL)",
    "INSERT INTO metadata VALUES (0)",
  ]

  /// The maximum number of bytes that a key and its value have together in one row: an eighth of a page.
  static let largestRow = 512

  /// "STKR", in the header field for the application of a file.
  static let applicationID: UInt32 = 0x5354_4b52
  static let formatVersion: UInt32 = 1
  static let headerLength = 100

  /// Verifies, by the first 100 bytes of a file, or as many as it has, that it is a database of this engine:
  /// https://sqlite.org/fileformat.html#the_database_header
  ///
  /// - Throws: `StorageError` with code `corrupted` if the file is not an SQLite database, `unsupported` if
  ///   another program, or a later version of this one, created it.
  static func recognize(header: [UInt8], path: String) throws {
    guard header.count == headerLength, header.starts(with: Array("SQLite format 3\0".utf8)) else {
      throw StorageError(.corrupted, "\(path) is not an SQLite database, or it is corrupted.")
    }
    // The versions for writing and for reading: with a rollback journal, or with a write-ahead log. SQLite
    // treats a file with an unknown version for writing as read-only.
    guard header[18...19].allSatisfy({ (1...2).contains($0) }) else {
      throw StorageError(.corrupted, "\(path) is corrupted: its header has an unknown version.")
    }
    try recognize(
      applicationID: number(header[68..<72]), formatVersion: number(header[60..<64]), path: path)
  }

  /// Verifies the two fields of the header that identify a database of this engine.
  ///
  /// - Throws: `StorageError` with code `unsupported`.
  static func recognize(applicationID: UInt32, formatVersion version: UInt32, path: String) throws {
    guard applicationID == Self.applicationID else {
      throw StorageError(.unsupported, "\(path) is an SQLite database of another program.")
    }
    guard version <= formatVersion else {
      throw StorageError(
        .unsupported,
        "\(path) has format \(version), and this version of Stockroom reads up to \(formatVersion).")
    }
  }

  /// The size in bytes of the pages of a database, if its header states it.
  static func size(header: [UInt8]) -> Int64? {
    // Another program's SQLite may have changed the database without counting its pages.
    guard header[92..<96] == header[24..<28] else { return nil }
    let pageSize = number(header[16..<18])
    return Int64(number(header[28..<32])) * Int64(pageSize == 1 ? 65_536 : pageSize)
  }

  private static func number(_ bytes: ArraySlice<UInt8>) -> UInt32 {
    bytes.reduce(0) { $0 << 8 | UInt32($1) }
  }
}
