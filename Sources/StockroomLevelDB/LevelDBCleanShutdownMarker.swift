import StockroomCore

/// The state of a database's files when it was closed.
///
/// LevelDB treats a corrupted end of a log or manifest like a crash, and continues without it. After a clean
/// close, the marker records the state of the files: any difference is corruption (rule F2). Tables are not
/// included: the manifest has their sizes, and they have their own checksums. The marker is removed before
/// the database is opened, so that there is none after a crash.
struct LevelDBCleanShutdownMarker {
  static let name = "STOCKROOM.closed"
  private static let title = "Stockroom LevelDB database, closed 1"

  /// The state of the marker of a database that is to be opened.
  enum Finding {
    /// There is no marker: the database was not closed.
    case absent
    /// The files have not changed since the database was closed.
    case matching
    /// Another program has opened the database since then, with a new manifest, and moved the contents of the
    /// logs.
    case outdated
    /// The marker cannot be read, so it states nothing about the other files.
    case unreadable
  }

  /// A line for each file: its name, its size, and its checksum.
  private let text: String

  /// Describes the current files.
  ///
  /// Costs reading them: a few megabytes, or the size of the last batches if that is more.
  init(describing files: LevelDBFiles) throws {
    let list = try LevelDBFileList(in: files)
    var lines = [Self.title]
    for name in [list.current].compactMap({ $0 }) + list.manifests.sorted() + list.logs {
      let bytes = try files.read(name)
      lines.append("\(name) \(bytes.count) \(CRC32C.checksum(bytes))")
    }
    text = ChecksummedText.adding(to: lines.joined(separator: "\n"))
  }

  /// The marker need not be on disk when this returns: without it, opening behaves as after a crash.
  func write(to files: LevelDBFiles) throws { try files.replace(Self.name, with: Array(text.utf8)) }

  /// Compares the files with the marker.
  ///
  /// - Throws: `StorageError` with code `corrupted` and the names of the files that differ, if no other
  ///   process can have opened the database since then.
  static func compare(with files: LevelDBFiles) throws -> Finding {
    guard let bytes = try files.readIfPresent(name) else { return .absent }
    let mark = String(decoding: bytes, as: UTF8.self)
    guard let marked = ChecksummedText.verifying(mark) else { return .unreadable }
    let text = try LevelDBCleanShutdownMarker(describing: files).text
    if text == mark { return .matching }
    let lines = Set(marked.split(separator: "\n"))
    if try isOutdated(lines, files) { return .outdated }
    let found = ChecksummedText.verifying(text) ?? ""
    let differing = Set(found.split(separator: "\n")).symmetricDifference(lines)
    let names = Set(differing.compactMap { $0.split(separator: " ").first }).sorted().joined(separator: ", ")
    throw StorageError(
      .corrupted,
      "The LevelDB database in \(files.path) is not as it was when it was closed. These files differ: \(names)."
    )
  }

  /// Opening a database creates a manifest with a new name. Corruption cannot make CURRENT name such a manifest: a file
  /// of that name would have to exist.
  private static func isOutdated(_ lines: Set<Substring>, _ files: LevelDBFiles) throws -> Bool {
    guard try files.exists("CURRENT") else { return false }
    let manifest: String
    do {
      manifest = try LevelDBManifest.currentName(in: files)
    } catch let error as StorageError where error.code == .corrupted {
      return false
    }
    return try !lines.contains { $0.hasPrefix(manifest + " ") } && files.exists(manifest)
  }
}
