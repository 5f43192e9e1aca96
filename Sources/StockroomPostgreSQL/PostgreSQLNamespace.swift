import StockroomCore

/// A schema of a database, which contains the tables of one engine's entries.
struct PostgreSQLNamespace: Sendable {
  /// The comment that distinguishes a table of entries from tables of other programs.
  static let mark = "Stockroom entries, format \(formatVersion)"
  static let formatVersion = 1
  private static let markPrefix = "Stockroom entries, format "

  let name: String

  /// - Throws: `StorageError` with code `unsupported` if no schema can have the name.
  init(_ name: String) throws {
    guard 1...63 ~= name.utf8.count, !name.utf8.contains(0), !name.utf8.starts(with: "pg_".utf8) else {
      throw StorageError(
        .unsupported,
        "\(name.debugDescription) cannot be a namespace: it takes 1 to 63 bytes, and not \"pg_\" at the beginning."
      )
    }
    self.name = name
  }

  /// The name as an identifier: https://www.postgresql.org/docs/15/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
  var schema: String { "\"\(name.replacingScalar("\"", with: "\"\""))\"" }

  func table(_ table: String) -> String { "\(schema).\(table)" }

  // MARK: Locks

  /// The meaning of the server's advisory locks.
  enum Lock: Int32 {
    /// Held shared by writers; held exclusively by transactions and everything else that must not run
    /// concurrently with writes.
    case writers = 0x5354_4b01
    /// Held shared by subscribers; held exclusively by commits that find no subscribers.
    case subscribers = 0x5354_4b02
    /// Held exclusively while the tables of a namespace are created.
    case creation = 0x5354_4b03
    /// Held exclusively, in addition to ``writers``, by writers of new keys until their commit: so keys are
    /// numbered in the order in which they become visible (rule R6).
    case order = 0x5354_4b04
  }

  /// The two numbers of a lock: https://www.postgresql.org/docs/15/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS
  func lock(of lock: Lock) -> String { "\(lock.rawValue), \(Int32(bitPattern: checksum))" }

  /// The channel of notifications.
  var channel: String { "stockroom_\(String(checksum, radix: 16))" }

  /// Two namespaces with the same checksum share their locks and their channel, and unnecessarily wait for
  /// each other or receive each other's notifications.
  private var checksum: UInt32 { Array(name.utf8).withUnsafeBytes { CRC32C.checksum($0) } }

  // MARK: Recognizing

  /// - Parameter comment: The comment of the table of entries.
  /// - Throws: `StorageError` with code `unsupported` unless it is that of a Stockroom table.
  func recognise(comment: String?) throws {
    guard let comment, comment.hasPrefix(Self.markPrefix) else {
      throw StorageError(.unsupported, "The schema \(schema) has tables of another program.")
    }
    guard let version = Int(comment.dropFirst(Self.markPrefix.count)), version <= Self.formatVersion else {
      throw StorageError(
        .unsupported,
        "The schema \(schema) has a later format than \(Self.formatVersion), up to which this version of Stockroom reads."
      )
    }
  }
}
