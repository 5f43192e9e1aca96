import Foundation
import StockroomCore

/// A storage engine that stores its entries in a file, one line of JSON for each change.
///
/// An example of a third-party engine: an actor with the six methods that are required, and `close()`, which every
/// engine needs that keeps files open. Its calls run on a queue, since they sometimes wait for the disk.
/// All entries are also in memory, where they must fit. A change is acknowledged once it has been written, without a
/// sync: it survives a crash of the process, but the last changes can be lost if the machine crashes or loses power.
public actor JSONStorageEngine: StorageEngine {
  /// Entries are still stored after the process has ended.
  public nonisolated let capabilities: EngineCapabilities = .persistent

  private let executor = QueueExecutor()
  /// The executor that runs the calls.
  public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

  /// Nil once the engine has been closed.
  private var log: ChangeLog?
  /// Nil until the file has been read.
  private var loadedEntries: [CacheKey: ChangeLog.Entry]?

  /// Opens the engine on a directory, which is created if it is missing. The file is read by the first call, which throws
  /// `corrupted` if it is corrupted or not a file of this engine.
  ///
  /// - Throws: `StorageError` with code `locked` if another engine is open on the directory, or with the code for an
  ///   error of the file system.
  public init(directory: URL) throws {
    log = try ChangeLog(in: directory)
  }

  /// Closes the file. Every later call throws `closed`.
  ///
  /// `async`, since a call on a value of this type would resolve to the default implementation otherwise.
  public func close() async throws {
    defer { (log, loadedEntries) = (nil, nil) }
    try log?.close()
  }

  /// The log, which is read if it has not been. Throws if the engine is closed, or the file was moved or removed.
  private func openLog() throws -> ChangeLog {
    guard let log else { throw StorageError(.closed, "The engine has been closed.") }
    try log.expectInPlace()
    if loadedEntries == nil { loadedEntries = try log.load() }
    return log
  }

  private var entries: [CacheKey: ChangeLog.Entry] {
    get throws {
      _ = try openLog()
      return loadedEntries ?? [:]
    }
  }

  /// Writes the entry to the file, then to memory: if writing to the file fails, nothing has changed.
  public func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    let now = Date()
    let log = try openLog()
    try log.rewriteIfMostlyOld(entries)
    let old = loadedEntries?[key]
    // In case the clock has been set back since the last write.
    let updatedAt = max(old?.updatedAt ?? now, now)
    // A copy, since a slice has its own start index and retains all of the memory that it is a part of.
    let entry = ChangeLog.Entry(value: Data(data), createdAt: old?.createdAt ?? now, updatedAt: updatedAt)
    try log.append(.init(key: key, entry: entry))
    loadedEntries?[key] = entry
  }

  /// The value, from memory.
  public func read(key: CacheKey) throws -> Data? {
    try key.validate()
    return try entries[key]?.value
  }

  /// Writes the removal to the file, then removes the entry from memory.
  public func remove(key: CacheKey) throws {
    try key.validate()
    let log = try openLog()
    guard loadedEntries?[key] != nil else { return }
    try log.rewriteIfMostlyOld(entries)
    try log.append(.init(key: key, entry: nil))
    loadedEntries?[key] = nil
  }

  /// Every key, from memory.
  public func allKeys() throws -> [CacheKey] {
    try Array(entries.keys)
  }

  /// When the key was first written, from memory.
  public func createdAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return try entries[key]?.createdAt
  }

  /// When the key was last written, from memory.
  public func updatedAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return try entries[key]?.updatedAt
  }
}
