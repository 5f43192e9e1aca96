import StockroomCore

/// What the files of a database looked like when it was closed.
///
/// LevelDB takes the end of a damaged log, or of a damaged manifest, for a crash and goes on without it. It has a
/// checksum on every block of a table, but none that tells a whole file from a shorter one. After a clean close
/// the mark tells: whatever differs is damage (rule F2). It is removed before the database is opened, so that
/// after a crash there is none.
struct LevelDBClosingMark {
  private static let name = "STOCKROOM.closed"
  private static let title = "Stockroom LevelDB database, closed 1"

  /// A line for each file: its name, its size, and its checksum unless it is a table.
  private let text: String

  /// Describes the files that are there.
  ///
  /// Costs one look for each table, and reading the rest, which is a few megabytes at most.
  init(describing path: String) throws {
    let files = try LevelDBFileList(in: path)
    var lines = [Self.title]
    for name in [files.current].compactMap({ $0 }) + files.manifests.sorted() + files.logs {
      let bytes = try LevelDBFiles.read(path + "/" + name)
      lines.append("\(name) \(bytes.count) \(CRC32C.checksum(bytes))")
    }
    for name in files.tables.sorted() {
      lines.append("\(name) \(try LevelDBFiles.size(of: path + "/" + name))")
    }
    let body = lines.joined(separator: "\n") + "\n"
    text = body + "\(CRC32C.checksum(Array(body.utf8)))\n"
  }

  /// Whether there is a mark in the directory.
  static func exists(in path: String) -> Bool { LevelDBFiles.exists(path + "/" + name) }

  static func remove(from path: String) throws { try LevelDBFiles.remove(path + "/" + name) }

  func write(to path: String) throws {
    try LevelDBFiles.replace(path + "/" + Self.name, with: Array(text.utf8))
  }

  /// Compares the files with the mark.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` and the name of the first file that differs.
  static func verify(in path: String) throws {
    let found = try LevelDBFiles.read(path + "/" + name)
    let expected = Array(try LevelDBClosingMark(describing: path).text.utf8)
    if found == expected { return }
    throw StorageError(
      .corrupted,
      "The LevelDB database in \(path) is not as it was when it was closed: "
        + difference(String(decoding: found, as: UTF8.self), String(decoding: expected, as: UTF8.self)))
  }

  private static func difference(_ found: String, _ expected: String) -> String {
    func names(_ text: String, _ other: String) -> [Substring] {
      let other = Set(other.split(separator: "\n"))
      return text.split(separator: "\n").filter { !other.contains($0) && $0.contains(" ") }
        .compactMap { $0.split(separator: " ").first }
    }
    if let name = names(expected, found).first ?? names(found, expected).first { return "see \(name)." }
    return "its closing mark is damaged."
  }
}
