import StockroomCLevelDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An open LevelDB database, and the objects that LevelDB needs as long as it is open.
///
/// Only this file calls LevelDB.
final class LevelDBHandle: @unchecked Sendable {
  // Safe to share: LevelDB synchronizes the database by itself, and the options are not changed after initialization.
  // close() and deinit run when neither is in use any more.
  private let database: OpaquePointer
  private var isOpen = true
  private let resources: LevelDBResources
  private let paths: LevelDBPaths

  /// The path of the database, for error messages.
  var path: String { paths.path }

  /// Opens the database in the directory.
  ///
  /// - Parameter isNew: Whether to create a database if there is none.
  /// - Throws: `StorageError` according to LevelDB's text.
  init(_ paths: LevelDBPaths, isNew: Bool, writeBufferSize: Int, durability: Durability) throws {
    let resources = LevelDBResources(isNew: isNew, writeBufferSize: writeBufferSize, durability: durability)
    let database = try paths.check("Opening") { leveldb_open(resources.options, paths.libraryPath, $0) }
    guard let database else {
      throw StorageError(.io, "Opening the LevelDB database in \(paths.path) failed without a reason.")
    }
    self.database = database
    self.resources = resources
    self.paths = paths
  }

  deinit { close() }

  /// Waits for a compaction in progress, and closes the database. Nothing else may be called afterwards.
  func close() {
    guard isOpen else { return }
    isOpen = false
    leveldb_close(database)
  }

  /// Calls `body` with the record under the key, or returns nil if there is none.
  func read<Result>(
    _ key: UnsafeRawBufferPointer, in snapshot: LevelDBSnapshot? = nil,
    _ body: (UnsafeRawBufferPointer) throws -> Result
  ) throws -> Result? {
    let options = snapshot?.options ?? resources.reading
    var count = 0
    let stored = try paths.check("Reading from") {
      leveldb_get(database, options, key.characters, key.count, &count, $0)
    }
    guard let stored else { return nil }
    defer { leveldb_free(stored) }
    return try body(UnsafeRawBufferPointer(start: stored, count: count))
  }

  /// A snapshot of the database. It must be released before the database is closed.
  func snapshot() -> LevelDBSnapshot { LevelDBSnapshot(of: database) }

  /// An iterator over the records at and after `start` in byte order, from a snapshot or the current state. It must be
  /// released before the database is closed.
  func iterator(
    from start: [UInt8] = [], fillingCache: Bool = false, in snapshot: LevelDBSnapshot? = nil
  ) -> LevelDBIterator {
    let options = snapshot?.options ?? (fillingCache ? resources.reading : resources.scanning)
    return LevelDBIterator(leveldb_create_iterator(database, options), from: start, paths)
  }

  /// The sizes of the tables by their numbers.
  func tables() -> [UInt64: UInt64] {
    guard let text = leveldb_property_value(database, "leveldb.sstables") else { return [:] }
    defer { leveldb_free(text) }
    var tables: [UInt64: UInt64] = [:]
    let bytes = UnsafeRawBufferPointer(start: text, count: strlen(text))
    for line in bytes.split(separator: UInt8(ascii: "\n")) where line.first == UInt8(ascii: " ") {
      // " NUMBER:SIZE[SMALLEST KEY .. LARGEST KEY]", where no key contains a line feed.
      let numbers = line.dropFirst().prefix { $0 != UInt8(ascii: "[") }.split(separator: UInt8(ascii: ":"))
        .map { UInt64(String(decoding: $0, as: UTF8.self)) }
      if numbers.count == 2, let number = numbers[0], let size = numbers[1] { tables[number] = size }
    }
    return tables
  }

  /// Merges the tables with the records of a range, so that removed records no longer take space.
  ///
  /// - Parameters:
  ///   - start: The first key; nil for the first of all.
  ///   - end: The last key; nil for the last of all.
  func compact(from start: [UInt8]?, to end: [UInt8]?) {
    (start ?? []).withUnsafeBytes { first in
      (end ?? []).withUnsafeBytes { last in
        leveldb_compact_range(
          database, start == nil ? nil : first.characters, first.count, end == nil ? nil : last.characters,
          last.count)
      }
    }
  }

  /// Moves the contents of the log to a table, as opening the database does, and begins a new log. Waits for the disk,
  /// and for a compaction that is in progress or begins. After a failure, the next opening does the work.
  func emptyLog() {
    // Compacting a range empties the log first, and this range has no records.
    compact(from: LevelDBMetadata.behind, to: LevelDBMetadata.behind)
  }

  /// Makes all changes of the batch, or, if it throws, none that a reader of this handle sees.
  ///
  /// - Parameter isSyncing: Whether the batch is on the disk when this returns, regardless of the durability
  ///   with which the database was opened.
  func write(_ batch: LevelDBBatch, syncing isSyncing: Bool = false) throws {
    try paths.check("Writing to") {
      leveldb_write(database, isSyncing ? resources.syncing : resources.writing, batch.batch, $0)
    }
  }
}

/// The path of a database: for messages, and for LevelDB.
struct LevelDBPaths: Sendable {
  let path: String
  let libraryPath: String

  /// Calls a function that reports failure as a text, and throws in that case.
  @discardableResult
  fileprivate func check<Result>(
    _ attempt: String, _ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Result
  ) throws -> Result {
    var text: UnsafeMutablePointer<CChar>?
    let result = call(&text)
    guard let text else { return result }
    defer { leveldb_free(text) }
    throw StorageError.levelDB(String(cString: text).replacing(libraryPath, with: path), attempt, path: path)
  }
}

/// Options, cache and filter, which LevelDB uses until the database is closed and does not free.
private final class LevelDBResources {
  let options = leveldb_options_create()
  /// For reads of a few entries.
  let reading = leveldb_readoptions_create()
  /// For reads of everything: reserves the cache for entries that are read again.
  let scanning = leveldb_readoptions_create()
  let writing = leveldb_writeoptions_create()
  let syncing = leveldb_writeoptions_create()
  private let cache = leveldb_cache_create_lru(32 << 20)
  /// Ten bits for each key: of a hundred absent keys, about one is searched for in a table.
  private let filter = leveldb_filterpolicy_create_bloom(10)

  init(isNew: Bool, writeBufferSize: Int, durability: Durability) {
    leveldb_options_set_create_if_missing(options, isNew ? 1 : 0)
    leveldb_options_set_paranoid_checks(options, 1)
    leveldb_options_set_write_buffer_size(options, writeBufferSize)
    leveldb_options_set_compression(options, Int32(leveldb_snappy_compression))
    leveldb_options_set_filter_policy(options, filter)
    leveldb_options_set_cache(options, cache)
    leveldb_readoptions_set_verify_checksums(reading, 1)
    leveldb_readoptions_set_verify_checksums(scanning, 1)
    leveldb_readoptions_set_fill_cache(scanning, 0)
    leveldb_writeoptions_set_sync(writing, durability == .full ? 1 : 0)
    leveldb_writeoptions_set_sync(syncing, 1)
  }

  deinit {
    leveldb_writeoptions_destroy(writing)
    leveldb_writeoptions_destroy(syncing)
    leveldb_readoptions_destroy(scanning)
    leveldb_readoptions_destroy(reading)
    leveldb_options_destroy(options)
    leveldb_filterpolicy_destroy(filter)
    leveldb_cache_destroy(cache)
  }
}

/// A snapshot of a database, for reading.
final class LevelDBSnapshot {
  private let database: OpaquePointer
  private let snapshot: OpaquePointer?
  fileprivate let options = leveldb_readoptions_create()

  fileprivate init(of database: OpaquePointer) {
    self.database = database
    snapshot = leveldb_create_snapshot(database)
    leveldb_readoptions_set_verify_checksums(options, 1)
    leveldb_readoptions_set_snapshot(options, snapshot)
  }

  deinit {
    leveldb_readoptions_destroy(options)
    leveldb_release_snapshot(database, snapshot)
  }
}

/// Iterates over the records of a snapshot in byte order of keys. May be passed between threads.
final class LevelDBIterator {
  private let iterator: OpaquePointer?
  private let paths: LevelDBPaths

  fileprivate init(_ iterator: OpaquePointer?, from start: [UInt8], _ paths: LevelDBPaths) {
    self.iterator = iterator
    self.paths = paths
    if start.isEmpty {
      leveldb_iter_seek_to_first(iterator)
    } else {
      start.withUnsafeBytes { leveldb_iter_seek(iterator, $0.characters, $0.count) }
    }
  }

  deinit { leveldb_iter_destroy(iterator) }

  /// The current record, or nil after the last one. The bytes are valid until the iterator moves.
  var current: (key: UnsafeRawBufferPointer, stored: UnsafeRawBufferPointer)? {
    guard leveldb_iter_valid(iterator) != 0 else { return nil }
    var keyCount = 0
    var valueCount = 0
    let key = UnsafeRawBufferPointer(start: leveldb_iter_key(iterator, &keyCount), count: keyCount)
    let value = UnsafeRawBufferPointer(start: leveldb_iter_value(iterator, &valueCount), count: valueCount)
    return (key, value)
  }

  func next() { leveldb_iter_next(iterator) }

  /// Throws if any record could not be read so far. An iterator skips a corrupted block and continues after it; only
  /// its status shows the error.
  func check() throws {
    try paths.check("Reading from") { leveldb_iter_get_error(iterator, $0) }
  }
}

/// Changes that are written as a whole.
final class LevelDBBatch {
  fileprivate let batch = leveldb_writebatch_create()

  deinit { leveldb_writebatch_destroy(batch) }

  func put(_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) {
    leveldb_writebatch_put(batch, key.characters, key.count, value.characters, value.count)
  }

  func put(_ metadata: LevelDBMetadata) {
    LevelDBMetadata.key.withUnsafeBytes { key in metadata.encoded.withUnsafeBytes { put(key, $0) } }
  }

  func delete(_ key: UnsafeRawBufferPointer) {
    leveldb_writebatch_delete(batch, key.characters, key.count)
  }
}

extension UnsafeRawBufferPointer {
  fileprivate var characters: UnsafePointer<CChar>? { baseAddress?.assumingMemoryBound(to: CChar.self) }
}
