import StockroomCore

/// What the files of a database looked like when it was closed.
///
/// LevelDB takes the end of a damaged log, or of a damaged manifest, for a crash and goes on without it. After a
/// clean close the mark tells: whatever differs is damage (rule F2). The tables are not in it: the manifest has
/// their sizes, and they have checksums of their own. The mark is removed before the database is opened, so that
/// there is none after a crash.
struct LevelDBClosingMark {
  private static let name = "STOCKROOM.closed"
  private static let title = "Stockroom LevelDB database, closed 1"

  /// A line for each file: its name, its size, and its checksum.
  private let text: String

  /// Describes the files that are there.
  ///
  /// Costs reading them: a few megabytes, or what was written in the last batches if that is more.
  init(describing path: String) throws {
    let files = try LevelDBFileList(in: path)
    var lines = [Self.title]
    for name in [files.current].compactMap({ $0 }) + files.manifests.sorted() + files.logs {
      let bytes = try LevelDBFiles.read(path + "/" + name)
      lines.append("\(name) \(bytes.count) \(CRC32C.checksum(bytes))")
    }
    text = CheckedText.adding(to: lines.joined(separator: "\n"))
  }

  /// Whether there is a mark in the directory.
  static func exists(in path: String) -> Bool { LevelDBFiles.exists(path + "/" + name) }

  static func remove(from path: String) throws { try LevelDBFiles.remove(path + "/" + name) }

  /// The mark need not be on disk when this returns: without it, opening takes the way as after a crash.
  func write(to path: String) throws {
    try LevelDBFiles.replace(path + "/" + Self.name, with: Array(text.utf8))
  }

  /// Compares the files with the mark.
  ///
  /// - Throws: `StorageError` with code `corrupted` and the names of the files that differ.
  static func verify(in path: String) throws {
    let mark = String(decoding: try LevelDBFiles.read(path + "/" + name), as: UTF8.self)
    guard let marked = CheckedText.verifying(mark) else {
      throw StorageError(.corrupted, "\(path)/\(name) is damaged.")
    }
    let text = try LevelDBClosingMark(describing: path).text
    if text == mark { return }
    let found = CheckedText.verifying(text) ?? ""
    let differing = Set(found.split(separator: "\n")).symmetricDifference(marked.split(separator: "\n"))
    let names = Set(differing.compactMap { $0.split(separator: " ").first }).sorted().joined(separator: ", ")
    throw StorageError(
      .corrupted,
      "The LevelDB database in \(path) is not as it was when it was closed. These files differ: \(names).")
  }
}
