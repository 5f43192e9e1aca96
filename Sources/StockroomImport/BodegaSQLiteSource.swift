import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The database of a `SQLiteStorageEngine` of Bodega, which is also that of a store of Boutique.
///
/// ```swift
/// let source = BodegaSQLiteSource(at: FileManager.Directory.documents(appendingPath: "Notes").url)
/// let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Stockroom/Notes"))
/// try await source.import(into: engine)
/// let store = try await Store<Note>(storage: engine)
/// ```
///
/// All layouts are read: a table `data`, or one with the name of the file, with the columns `key`, `value`,
/// `createdAt` and `updatedAt`, and times as text, with and without a time zone. Most versions of Bodega
/// store the time of the first launch as `createdAt` of every entry; such entries are imported with this
/// time, in the order in which they were last written.
///
/// The database is first copied to the temporary directory, with its write-ahead log and its journal, and
/// SQLite opens the copy. During the import, this takes as much disk space as the database. The time to open
/// is O(size of the database): every page is checked.
public struct BodegaSQLiteSource: ImportSource {
  private let url: URL
  private let table: String?
  /// A copy that is already open, since it was needed to detect the kind of the source.
  private let detected: SourceDatabase?

  /// - Parameters:
  ///   - url: The database, `data.sqlite3` by default, or the directory that contains it.
  ///   - table: The table, if several tables have the columns of Bodega's.
  public init(at url: URL, table: String? = nil) {
    self.url = url
    self.table = table
    detected = nil
  }

  init(at url: URL, detected: SourceDatabase) {
    self.url = url
    table = nil
    self.detected = detected
  }

  /// "the Bodega database" and its path.
  public var description: String { "the Bodega database \(url.path(percentEncoded: false))" }

  /// Copies and checks the database, then reads all keys and times.
  ///
  /// - Throws: as ``ImportSource/open()``.
  @concurrent
  public func open() async throws -> any ImportContent {
    try await DedicatedThread.runOnNewThread { flag in
      let database = try SourceDatabase.checked(detected, at: url, suffix: ".sqlite3", flag)
      let candidates = try Self.tables(in: database)
      let chosen = candidates.filter { table == nil || $0 == table }
      guard let table = chosen.first, chosen.count == 1 else {
        throw StorageError(
          .unsupported,
          chosen.isEmpty
            ? "\(database.path) has no table \(table.map { "\($0.debugDescription) " } ?? "")with the columns of Bodega's."
            : "\(database.path) has several tables like Bodega's: \(chosen.joined(separator: ", ")). Specify one with table: or --table."
        )
      }
      return try TableContent(of: table, .bodega, in: database)
    }
  }

  /// The tables that have exactly the columns of Bodega's.
  static func tables(in database: SourceDatabase) throws -> [String] {
    try database.tables().filter { $0.value == TableLayout.bodega.columns }.keys.sorted()
  }
}
