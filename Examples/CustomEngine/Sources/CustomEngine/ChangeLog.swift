import Foundation
import StockroomCore

/// The file with the changes, and the lock that keeps other engines away from it while it is open.
final class ChangeLog {
  struct Entry: Codable, Sendable {
    var value: Data
    var createdAt: Date
    var updatedAt: Date
  }

  /// A line of the file. Without an entry the key was removed.
  struct Change: Codable {
    /// The bytes of the key: text in JSON might come back composed in another way.
    private var bytes: Data
    var entry: Entry?

    var key: CacheKey { CacheKey(verbatim: String(decoding: bytes, as: UTF8.self)) }

    init(key: CacheKey, entry: Entry?) {
      bytes = Data(key.value.utf8)
      self.entry = entry
    }
  }

  private let url: URL
  private let lock: FileLock
  private let file: FileHandle
  private var length: UInt64

  private init(url: URL, lock: FileLock) throws {
    self.url = url
    self.lock = lock
    (file, length) = try reporting("Opening \(url.path)") {
      let file = try FileHandle(forUpdating: url)
      return (file, try file.seekToEnd())
    }
  }

  /// Opens the file in a directory, and gives what it contains.
  static func open(in directory: URL) throws -> (ChangeLog, [CacheKey: Entry]) {
    try reporting("Making the directory \(directory.path)") {
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    }
    let url = directory.appending(path: "changes.json")
    let lock = try FileLock(at: directory.appending(path: "changes.lock"))
    let (entries, isTidy) = try load(url)
    if !isTidy { try rewrite(url, entries) }
    return (try ChangeLog(url: url, lock: lock), entries)
  }

  /// Adds a line. If that fails, for lack of room for instance, none of it stays in the file.
  func append(_ change: Change) throws {
    try reporting("Writing to \(url.path)") {
      let line = try JSONEncoder().encode(change) + [Self.newline]
      do {
        try file.seek(toOffset: length)
        try file.write(contentsOf: line)
        length += UInt64(line.count)
      } catch {
        // Should this fail as well, the next line overwrites what is left, or the next opening cuts it off.
        try? file.truncate(atOffset: length)
        throw error
      }
    }
  }

  private static let newline = UInt8(ascii: "\n")
  /// By which the file is recognised: one without it, an empty one for instance, is damaged or somebody else's.
  private static let firstLine = Data("JSONStorageEngine, format 1\n".utf8)

  /// What the lines add up to, and whether the file is worth keeping as it is.
  private static func load(_ url: URL) throws -> (entries: [CacheKey: Entry], isTidy: Bool) {
    guard FileManager.default.fileExists(atPath: url.path) else { return ([:], false) }
    let bytes = try reporting("Reading \(url.path)") { try Data(contentsOf: url) }
    guard bytes.starts(with: firstLine) else {
      throw StorageError(.corrupted, "\(url.path) is no file of this engine, or is damaged.")
    }
    var lines = bytes.dropFirst(firstLine.count).split(separator: newline, omittingEmptySubsequences: false)
    // Every line ends with a newline. What comes after the last one was cut short when the process died, before
    // it was acknowledged.
    let isWhole = lines.popLast()?.isEmpty ?? true
    var entries: [CacheKey: Entry] = [:]
    for line in lines {
      do {
        let change = try JSONDecoder().decode(Change.self, from: line)
        entries[change.key] = change.entry
      } catch {
        throw StorageError(.corrupted, "\(url.path) is damaged.", underlying: error)
      }
    }
    return (entries, isWhole && lines.count <= 2 * entries.count + 100)
  }

  /// Puts a file without removed and overwritten entries in the place of the old one, as a whole.
  private static func rewrite(_ url: URL, _ entries: [CacheKey: Entry]) throws {
    try reporting("Writing \(url.path)") {
      var bytes = firstLine
      for (key, entry) in entries {
        bytes += try JSONEncoder().encode(Change(key: key, entry: entry)) + [newline]
      }
      try bytes.write(to: url, options: .atomic)
    }
  }
}

/// Does something with files, and turns what Foundation throws into what the contract asks for.
private func reporting<Result>(_ what: String, _ body: () throws -> Result) throws -> Result {
  do {
    return try body()
  } catch {
    let code: StorageError.Code =
      switch (error as? CocoaError)?.code {
      case .fileWriteOutOfSpace: .diskFull
      case .fileWriteVolumeReadOnly: .readOnly
      case .fileWriteNoPermission, .fileReadNoPermission: .permissionDenied
      default: .io
      }
    throw StorageError(code, "\(what) failed.", underlying: error)
  }
}
