import Foundation
import StockroomCore

/// A storage engine that keeps its entries in a file of JSON, one line for each change.
///
/// An example of an engine by somebody else: an actor with the six methods that are required, and not one more.
/// Everything is in memory as well, so it suits what fits there. A change is acknowledged when the operating system
/// has it: it survives the death of the process, and the last changes may be lost when the machine dies.
public actor JSONStorageEngine: StorageEngine {
  /// What is written is there after the next launch.
  public nonisolated let capabilities: EngineCapabilities = .persistent

  private let log: ChangeLog
  private var entries: [CacheKey: ChangeLog.Entry]

  /// Opens the engine on a directory, which is made if it is missing. Costs reading the file.
  ///
  /// - Throws: `StorageError` with code `locked` if another engine is open on the directory, `corrupted` if the
  ///   file is damaged or not one of this engine's, or what the file system reports.
  public init(directory: URL) throws {
    (log, entries) = try ChangeLog.open(in: directory)
  }

  /// Writes the entry to the file, then to memory: what could not be saved has not happened.
  public func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    let now = Date()
    let old = entries[key]
    // The clock may have been set back since the last write.
    let updatedAt = max(old?.updatedAt ?? now, now)
    // A slice would keep its indices, and all of the memory that it is a part of.
    let entry = ChangeLog.Entry(value: Data(data), createdAt: old?.createdAt ?? now, updatedAt: updatedAt)
    try log.append(.init(key: key, entry: entry))
    entries[key] = entry
  }

  /// The value, from memory.
  public func read(key: CacheKey) throws -> Data? {
    try key.validate()
    return entries[key]?.value
  }

  /// Notes the removal in the file, then removes the entry from memory.
  public func remove(key: CacheKey) throws {
    try key.validate()
    guard entries[key] != nil else { return }
    try log.append(.init(key: key, entry: nil))
    entries[key] = nil
  }

  /// Every key, from memory.
  public func allKeys() -> [CacheKey] {
    Array(entries.keys)
  }

  /// When the key was first written, from memory.
  public func createdAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.createdAt
  }

  /// When the key was last written, from memory.
  public func updatedAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.updatedAt
  }
}
