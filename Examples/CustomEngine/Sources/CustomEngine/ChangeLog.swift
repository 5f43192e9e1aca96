import Foundation
import StockroomCore

/// The file with the changes, and the lock that excludes other engines while it is open.
final class ChangeLog {
  struct Entry: Codable, Sendable {
    var value: Data
    var createdAt: Date
    var updatedAt: Date
  }

  /// A line of the file. Nil as the entry means that the key was removed.
  struct Change: Codable {
    /// The UTF-8 of the key, so that decoding cannot change its Unicode normalization.
    private var bytes: Data
    var entry: Entry?

    var key: CacheKey { CacheKey(verbatim: String(decoding: bytes, as: UTF8.self)) }

    init(key: CacheKey, entry: Entry?) {
      bytes = Data(key.value.utf8)
      self.entry = entry
    }
  }

  private let directory: URL
  private let lock: OwnedFile
  private var file: OwnedFile
  private var length = 0
  /// The length of the file without overwritten and removed entries, when it was opened or last rewritten.
  private var rewrittenLength = 0
  /// Whether the lock file is as it was when it was opened: empty, or with the length that ``close()`` has recorded.
  private var isMarked = true

  /// Opens the file in a directory, without reading it.
  init(in directory: URL) throws {
    self.directory = directory
    try OwnedFile.makeDirectory(directory)
    lock = try OwnedFile(directory.appending(path: "changes.lock"))
    try lock.lock()
    file = try OwnedFile(directory.appending(path: "changes.json"))
  }

  /// The entries after all changes. Reads the whole file.
  func load() throws -> [CacheKey: Entry] {
    let bytes = try file.read()
    let closedLength = Int(String(decoding: try lock.read(), as: UTF8.self))
    if let closedLength, closedLength != bytes.count { throw corrupted(nil) }
    length = 0
    if !bytes.starts(with: Self.firstLine) {
      // A new file, or one that a power loss has left empty or zeroed. All others are corrupted or not of this engine.
      // One whose first write failed was closed with length 0.
      guard closedLength ?? 0 == 0, bytes.allSatisfy({ $0 == 0 }) else { throw corrupted(nil) }
      return [:]
    }
    length = Self.firstLine.count
    var entries: [CacheKey: Entry] = [:]
    var lengths: [CacheKey: Int] = [:]
    var lineCount = 0
    while let end = bytes[length...].firstIndex(of: Self.newline) {
      do {
        let change = try JSONDecoder().decode(Change.self, from: bytes[length..<end])
        entries[change.key] = change.entry
        lengths[change.key] = change.entry == nil ? nil : end + 1 - length
      } catch {
        // After a crash, the end of a file that was not closed can be truncated or zeroed.
        if closedLength != nil { throw corrupted(error) }
        break
      }
      length = end + 1
      lineCount += 1
    }
    if closedLength != nil, length != bytes.count { throw corrupted(nil) }
    rewrittenLength = Self.firstLine.count + lengths.values.reduce(0, +)
    if lineCount > 2 * entries.count + 100 { try rewriteIfAllowed(entries) }
    return entries
  }

  private func corrupted(_ error: (any Error)?) -> StorageError {
    StorageError(.corrupted, "\(file.path) is not a file of this engine, or is corrupted.", underlying: error)
  }

  /// - Throws: `StorageError` with code `io` if the path leads to another file now, or to none.
  func expectInPlace() throws { try file.expectInPlace() }

  /// Rewrites the file, without entries that have been overwritten or removed, if it has grown to more than twice the
  /// length that it had without them when it was opened or last rewritten, and 16 MiB.
  func rewriteIfMostlyOld(_ entries: [CacheKey: Entry]) throws {
    if length > 2 * rewrittenLength + (16 << 20) { try rewriteIfAllowed(entries) }
  }

  /// Rewrites the file, unless there is no space for another one or no permission to create it: then it keeps growing.
  private func rewriteIfAllowed(_ entries: [CacheKey: Entry]) throws {
    let new: (file: OwnedFile, length: Int)
    do {
      new = try written(entries)
    } catch let error as StorageError where [.diskFull, .permissionDenied, .readOnly].contains(error.code) {
      return
    }
    try new.file.rename(to: file.path)
    file.close()
    (file, length, rewrittenLength) = (new.file, new.length, new.length)
    try OwnedFile.sync(directory)
  }

  /// Appends a line. If that fails, for example because the disk is full, no part of it is read later.
  func append(_ change: Change) throws {
    try file.expectInPlace()
    try removeMark()
    var line = try JSONEncoder().encode(change) + [Self.newline]
    if length == 0 { line = Self.firstLine + line }
    try file.write(line, at: length)
    length += line.count
  }

  /// Closes the file, and records its length, so that a later truncation is detected.
  func close() throws {
    defer {
      file.close()
      lock.close()
    }
    if isMarked { return }
    // In this order, so that the length is not on the disk before the file and its directory entry.
    try file.sync()
    try OwnedFile.sync(directory)
    // What a failed write has left after the last line is ignored only if no length is recorded.
    guard try file.length() == length else { return }
    try lock.write(Data("\(length)".utf8), at: 0)
    try lock.sync()
  }

  /// Removes the length from the lock file, before anything is changed.
  private func removeMark() throws {
    guard isMarked else { return }
    try lock.truncate()
    try lock.sync()
    isMarked = false
  }

  private static let newline = UInt8(ascii: "\n")
  /// Identifies the format of the file.
  private static let firstLine = Data("JSONStorageEngine, format 1\n".utf8)

  /// Writes another file, without removed and overwritten entries, to replace this one.
  private func written(_ entries: [CacheKey: Entry]) throws -> (file: OwnedFile, length: Int) {
    try file.expectInPlace()
    try removeMark()
    let new = try OwnedFile(directory.appending(path: "changes.new"))
    var bytes = Self.firstLine
    for (key, entry) in entries {
      bytes += try JSONEncoder().encode(Change(key: key, entry: entry)) + [Self.newline]
    }
    try new.truncate()
    try new.write(bytes, at: 0)
    try new.sync()
    return (new, bytes.count)
  }
}
