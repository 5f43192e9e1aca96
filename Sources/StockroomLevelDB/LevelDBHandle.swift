import CLevelDB
import StockroomCore

/// An open LevelDB database, and everything that must live as long as it does.
///
/// This and the iterator, snapshot and batch next to it are the only code that calls LevelDB.
final class LevelDBHandle: @unchecked Sendable {
  // Safe to share: LevelDB synchronizes the database by itself, the options are never changed after
  // initialisation, and close() and deinit run when nobody uses either any more.
  private let database: OpaquePointer
  private var isOpen = true
  private let resources: LevelDBResources
  let path: String

  /// Opens the database in the directory, and makes one if there is none.
  ///
  /// - Throws: `StorageError` as LevelDB's text says.
  init(path: String, writeBufferSize: Int, durability: Durability) throws {
    let resources = LevelDBResources(writeBufferSize: writeBufferSize, durability: durability)
    let database = try Self.check("Opening", path: path) { leveldb_open(resources.options, path, $0) }
    guard let database else {
      throw StorageError(.io, "Opening the LevelDB database in \(path) failed without a reason.")
    }
    self.database = database
    self.resources = resources
    self.path = path
  }

  deinit { close() }

  /// Waits for a compaction that is running, and gives the database up. Nothing else may be called afterwards.
  func close() {
    guard isOpen else { return }
    isOpen = false
    leveldb_close(database)
  }

  /// Calls `body` with what is stored under the key, or returns nil if there is nothing.
  func read<Result>(
    _ key: UnsafeRawBufferPointer, in snapshot: LevelDBSnapshot? = nil,
    _ body: (UnsafeRawBufferPointer) throws -> Result
  ) throws -> Result? {
    let options = snapshot?.options ?? resources.reading
    var count = 0
    let stored = try Self.check("Reading from", path: path) {
      leveldb_get(database, options, key.characters, key.count, &count, $0)
    }
    guard let stored else { return nil }
    defer { leveldb_free(stored) }
    return try body(UnsafeRawBufferPointer(start: stored, count: count))
  }

  /// What the database holds now, for as long as `body` runs.
  func withSnapshot<Result>(_ body: (LevelDBSnapshot) throws -> Result) rethrows -> Result {
    let snapshot = leveldb_create_snapshot(database)
    defer { leveldb_release_snapshot(database, snapshot) }
    let options = LevelDBSnapshot(snapshot)
    return try withExtendedLifetime(options) { try body(options) }
  }

  /// Walks the records at and after `start` in byte order, as they are now, until `body` returns false.
  ///
  /// The bytes that `body` gets are valid during the call only.
  func forEach(
    from start: [UInt8] = [], fillingCache: Bool = false,
    _ body: (_ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer) throws -> Bool
  ) throws {
    let options = fillingCache ? resources.reading : resources.scanning
    let iterator = leveldb_create_iterator(database, options)
    defer { leveldb_iter_destroy(iterator) }
    if start.isEmpty {
      leveldb_iter_seek_to_first(iterator)
    } else {
      start.withUnsafeBytes { leveldb_iter_seek(iterator, $0.characters, $0.count) }
    }
    while leveldb_iter_valid(iterator) != 0 {
      var keyCount = 0
      var valueCount = 0
      let key = UnsafeRawBufferPointer(start: leveldb_iter_key(iterator, &keyCount), count: keyCount)
      let value = UnsafeRawBufferPointer(start: leveldb_iter_value(iterator, &valueCount), count: valueCount)
      guard try body(key, value) else { break }
      leveldb_iter_next(iterator)
    }
    // An iterator leaves out a block that is damaged, goes on behind it, and tells only if it is asked.
    try Self.check("Reading from", path: path) { leveldb_iter_get_error(iterator, $0) }
  }

  /// Does everything in the batch, or, if it throws, nothing that a reader of this handle sees.
  func write(_ batch: LevelDBBatch) throws {
    try Self.check("Writing to", path: path) {
      leveldb_write(database, resources.writing, batch.batch, $0)
    }
  }

  /// Calls a function that reports failure as a text, and throws if it does.
  @discardableResult
  private static func check<Result>(
    _ attempt: String, path: String, _ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Result
  ) throws -> Result {
    var text: UnsafeMutablePointer<CChar>?
    let result = call(&text)
    guard let text else { return result }
    defer { leveldb_free(text) }
    throw StorageError.levelDB(String(cString: text), attempt, path: path)
  }
}

/// Options, cache and filter, which LevelDB uses until the database is closed and does not free.
private final class LevelDBResources {
  let options = leveldb_options_create()
  /// For reading a few entries.
  let reading = leveldb_readoptions_create()
  /// For reading everything: leaves the cache to what is read again.
  let scanning = leveldb_readoptions_create()
  let writing = leveldb_writeoptions_create()
  private let cache = leveldb_cache_create_lru(32 << 20)
  /// Ten bits for each key: of a hundred keys that a table does not hold, about one is looked for in it.
  private let filter = leveldb_filterpolicy_create_bloom(10)

  init(writeBufferSize: Int, durability: Durability) {
    leveldb_options_set_create_if_missing(options, 1)
    leveldb_options_set_paranoid_checks(options, 1)
    leveldb_options_set_write_buffer_size(options, writeBufferSize)
    leveldb_options_set_compression(options, Int32(leveldb_snappy_compression))
    leveldb_options_set_filter_policy(options, filter)
    leveldb_options_set_cache(options, cache)
    leveldb_readoptions_set_verify_checksums(reading, 1)
    leveldb_readoptions_set_verify_checksums(scanning, 1)
    leveldb_readoptions_set_fill_cache(scanning, 0)
    leveldb_writeoptions_set_sync(writing, durability == .full ? 1 : 0)
  }

  deinit {
    leveldb_writeoptions_destroy(writing)
    leveldb_readoptions_destroy(scanning)
    leveldb_readoptions_destroy(reading)
    leveldb_options_destroy(options)
    leveldb_filterpolicy_destroy(filter)
    leveldb_cache_destroy(cache)
  }
}

/// One moment of a database, for reading. Lent by ``LevelDBHandle/withSnapshot(_:)``.
final class LevelDBSnapshot {
  fileprivate let options = leveldb_readoptions_create()

  fileprivate init(_ snapshot: OpaquePointer?) {
    leveldb_readoptions_set_verify_checksums(options, 1)
    leveldb_readoptions_set_snapshot(options, snapshot)
  }

  deinit { leveldb_readoptions_destroy(options) }
}

/// What is to be written as a whole.
final class LevelDBBatch {
  fileprivate let batch = leveldb_writebatch_create()

  deinit { leveldb_writebatch_destroy(batch) }

  func put(_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) {
    leveldb_writebatch_put(batch, key.characters, key.count, value.characters, value.count)
  }

  func delete(_ key: UnsafeRawBufferPointer) {
    leveldb_writebatch_delete(batch, key.characters, key.count)
  }
}

extension UnsafeRawBufferPointer {
  fileprivate var characters: UnsafePointer<CChar>? { baseAddress?.assumingMemoryBound(to: CChar.self) }
}
