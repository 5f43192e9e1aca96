import Foundation
import PeerLevelDB
import StockroomCore

/// An open LevelDB database with the same settings as Stockroom's engine, including checksums.
final class LevelDBDatabase: @unchecked Sendable {
  // Safe to share: LevelDB synchronizes the database, and nothing else changes after initialization.
  private let database: OpaquePointer
  private let options = leveldb_options_create()
  private let reading = leveldb_readoptions_create()
  private let scanning = leveldb_readoptions_create()
  private let writing = leveldb_writeoptions_create()
  private let cache = leveldb_cache_create_lru(32 << 20)
  private let filter = leveldb_filterpolicy_create_bloom(10)

  init(path: String, durability: Durability) throws {
    leveldb_options_set_create_if_missing(options, 1)
    leveldb_options_set_paranoid_checks(options, 1)
    leveldb_options_set_write_buffer_size(options, 8 << 20)
    leveldb_options_set_compression(options, Int32(leveldb_snappy_compression))
    leveldb_options_set_filter_policy(options, filter)
    leveldb_options_set_cache(options, cache)
    leveldb_readoptions_set_verify_checksums(reading, 1)
    leveldb_readoptions_set_verify_checksums(scanning, 1)
    leveldb_readoptions_set_fill_cache(scanning, 0)
    leveldb_writeoptions_set_sync(writing, durability == .full ? 1 : 0)
    guard let database = try Self.check({ [options] in leveldb_open(options, path, $0) }) else {
      throw StorageError.peer("LevelDB has returned no database.")
    }
    self.database = database
  }

  deinit {
    leveldb_close(database)
    leveldb_writeoptions_destroy(writing)
    leveldb_readoptions_destroy(scanning)
    leveldb_readoptions_destroy(reading)
    leveldb_options_destroy(options)
    leveldb_filterpolicy_destroy(filter)
    leveldb_cache_destroy(cache)
  }

  func put(_ data: Data, _ key: CacheKey) throws {
    try key.withBytes { key in
      try data.withUnsafeBytes { data in
        try Self.check {
          leveldb_put(database, writing, key.characters, key.count, data.characters, data.count, $0)
        }
      }
    }
  }

  func delete(_ key: CacheKey) throws {
    try key.withBytes { key in
      try Self.check { leveldb_delete(database, writing, key.characters, key.count, $0) }
    }
  }

  func writeBatch(_ fill: (OpaquePointer) throws -> Void) throws {
    guard let batch = leveldb_writebatch_create() else {
      throw StorageError.peer("LevelDB has returned no batch.")
    }
    defer { leveldb_writebatch_destroy(batch) }
    try fill(batch)
    try Self.check { leveldb_write(database, writing, batch, $0) }
  }

  func get(_ key: CacheKey, snapshot: OpaquePointer? = nil) throws -> Data? {
    try key.withBytes { key in
      var count = 0
      let found = try Self.check {
        leveldb_get(database, snapshot ?? reading, key.characters, key.count, &count, $0)
      }
      guard let found else { return nil }
      defer { leveldb_free(found) }
      return Data(bytes: found, count: count)
    }
  }

  /// Calls `body` with options for reading from a snapshot.
  func withSnapshot<Result>(_ body: (OpaquePointer?) throws -> Result) rethrows -> Result {
    let snapshot = leveldb_create_snapshot(database)
    defer { leveldb_release_snapshot(database, snapshot) }
    let options = leveldb_readoptions_create()
    defer { leveldb_readoptions_destroy(options) }
    leveldb_readoptions_set_verify_checksums(options, 1)
    leveldb_readoptions_set_snapshot(options, snapshot)
    return try body(options)
  }

  /// Calls `body` in the order of keys, beginning at `start`, until it returns false.
  func forEach(
    from start: [UInt8] = [], fillingCache: Bool = false,
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) -> Bool
  ) throws {
    let iterator = leveldb_create_iterator(database, fillingCache ? reading : scanning)
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
      guard body(key, value) else { break }
      leveldb_iter_next(iterator)
    }
    try Self.check { leveldb_iter_get_error(iterator, $0) }
  }

  @discardableResult
  private static func check<Result>(
    _ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Result
  ) throws -> Result {
    var text: UnsafeMutablePointer<CChar>?
    let result = call(&text)
    guard let text else { return result }
    defer { leveldb_free(text) }
    throw StorageError.peer(String(cString: text))
  }
}

extension UnsafeRawBufferPointer {
  var characters: UnsafePointer<CChar>? { baseAddress?.assumingMemoryBound(to: CChar.self) }
}
